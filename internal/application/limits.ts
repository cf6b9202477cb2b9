/** Every bound of reading a body in search of a person, with the reason for its size. */

/** Layers of encoding that are removed: base64 in escaped JSON in base64, and as many again. */
export const LAYERS_MAX = 8;
/** Texts one body may decode to: an ordinary body gives one or two. */
export const READINGS_MAX = 64;
/** Bytes and characters one body may decode to, sixteen times the largest body that is kept: a compressed bomb ends here. */
export const DECODED_MAX = 1024 * 1024;
/** The nine digits of an EIN: what fewer bytes in base64 or hexadecimal digits hold is not looked for. */
export const ENCODED_BYTES_MIN = 9;
/** Binary data in base64 up to this size is a key, a digest or a signature; more may be a document. */
export const BINARY_IGNORED_BYTES = 512;
/** Compressed or encrypted data has more different byte values than this; a run of ordinary letters has fewer. */
export const BINARY_DISTINCT_MIN = 128;
