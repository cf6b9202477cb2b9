import { expect, test } from '@jest/globals';
import { readOf } from './claims.ts';

const options = {
  rolesClaim: 'roles',
  nameClaim: 'name',
  roles: { viewer: 'viewer', support: 'support', operator: 'operator' },
};

test.each([
  [{ operator: { 1: 'a.example' } }, 'operator'],
  [{ operator: false, support: null, viewer: true }, 'viewer'],
  [{ operator: false }, undefined],
])('a map of roles gives those that it does not deny: %j', (roles, role) => {
  expect(readOf([{ roles }], options).role).toBe(role);
});
