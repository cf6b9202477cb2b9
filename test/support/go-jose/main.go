// Takes a JWK set and a file of receipts; prints the claims of each, or `refused`.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"
)

func main() {
	var set jose.JSONWebKeySet
	text, _ := os.ReadFile(os.Args[1])
	if err := json.Unmarshal(text, &set); err != nil {
		panic(err)
	}
	file, _ := os.Open(os.Args[2])
	for lines := bufio.NewScanner(file); lines.Scan(); {
		receipt, err := jose.ParseSigned(lines.Text(), []jose.SignatureAlgorithm{jose.ES256})
		var claims []byte
		if err == nil {
			claims, err = receipt.Verify(set)
		}
		if err != nil {
			claims = []byte("refused")
		}
		fmt.Println(string(claims))
	}
}
