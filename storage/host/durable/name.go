package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// nameLimit keeps a name, with its extension and what a write in progress adds, below the
// 255 bytes of every Linux filesystem.
const nameLimit = 200

// Name makes a file name of an ID (block.md U-12, U-25): bytes outside [A-Za-z0-9._-], and a
// leading dot, become %XX, so that no two IDs share a name and none leaves its directory or
// hides in it. A longer name keeps its start and ends in "~" and the SHA-256 of the ID. The
// file repeats the ID in full, and its reader compares.
func Name(id string) string {
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '_' || c == '-' || c == '.' && i > 0
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	name := b.String()
	if len(name) > nameLimit {
		sum := sha256.Sum256([]byte(id))
		name = name[:nameLimit-1-hex.EncodedLen(len(sum))] + "~" + hex.EncodeToString(sum[:])
	}
	return name
}
