package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// nameLimit keeps a file name, with the suffixes a durable write adds, below the 255
// bytes of every Linux filesystem.
const nameLimit = 200

// fileName encodes a volume ID as a file name (block.md U-25): bytes outside
// [A-Za-z0-9._-], and a leading dot, become %XX. A longer name keeps its start and ends in
// "~" and the SHA-256 of the ID; the record inside has the ID in full.
func fileName(volumeID string) string {
	var b strings.Builder
	for i := range len(volumeID) {
		c := volumeID[i]
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
		sum := sha256.Sum256([]byte(volumeID))
		name = name[:nameLimit-1-hex.EncodedLen(len(sum))] + "~" + hex.EncodeToString(sum[:])
	}
	return name + ".json"
}
