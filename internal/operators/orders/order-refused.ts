/** Why an order is not carried out. */

/** What the operator named is missing or cannot be used. */
export class OrderRefused extends Error {
  override readonly name = 'OrderRefused';
}
