import hashlib, jwt, sys, urllib.request

base_url, receipt, body = sys.argv[1], open(sys.argv[2]).read().strip(), open(sys.argv[3], "rb").read()
keys = jwt.PyJWKSet.from_json(urllib.request.urlopen(base_url + "/capital/jwks.json").read().decode())
head = jwt.get_unverified_header(receipt)
key = next(key for key in keys.keys if key.key_id == head["kid"])
claims = jwt.decode(receipt, key, algorithms=["ES256"])
assert head["typ"] == "receipt+jwt", "not a receipt"
assert hashlib.sha256(body).hexdigest() == claims["body_sha256"], "another body"
print(claims)
