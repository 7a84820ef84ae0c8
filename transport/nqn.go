package transport

import (
	"fmt"
	"regexp"
)

// Hold claims a device exclusively while a target is enabled on it (block.md B-426). The
// answered release lets go. A device in use is an error, and the target stays disabled.
type Hold func(device string) (release func() error, err error)

// NQN is an NVMe qualified name that passed ParseNQN. It is safe as one path component
// and as one value of a comma-separated option list.
type NQN string

// nqnLimit is the longest NQN in bytes, NVMe Base Specification 4.5.
const nqnLimit = 223

// nqnForm is nqn.yyyy-mm.reverse-domain with an optional :name. The specification allows
// any UTF-8 in the name; blanks, slashes and commas are refused because the kernel takes
// the NQN as a directory name and as an option value.
var nqnForm = regexp.MustCompile(`^nqn\.[0-9]{4}-(0[1-9]|1[0-2])\.[A-Za-z0-9.-]+(:[!-+\--.0-~]+)?$`)

// ParseNQN checks the form and length of an NQN. Anything else is ErrInvalid.
func ParseNQN(s string) (NQN, error) {
	if len(s) > nqnLimit {
		return "", fmt.Errorf("%w: NQN of %d bytes, at most %d", ErrInvalid, len(s), nqnLimit)
	}
	if !nqnForm.MatchString(s) {
		return "", fmt.Errorf("%w: %q is not an NQN", ErrInvalid, s)
	}
	return NQN(s), nil
}
