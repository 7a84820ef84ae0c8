package zfs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

// errNoPool is the tools' own word that the pool is not imported.
var errNoPool = errors.New("no such pool")

// errAbsent is zfs's word that a dataset is not there. It says so of every dataset of a
// pool that is not imported, so it is not yet storage.ErrNotFound.
var errAbsent = errors.New("not there, or its pool is not")

// said is what the tools print, from OpenZFS 2.1 to 2.3 (lib/libzfs/libzfs_util.c, cmd/zfs).
// The first that fits the first line decides: what it begins with, and what comes after the
// quoted name.
var said = []struct {
	begin, end string
	kind       error
}{
	{"cannot open '", "': dataset does not exist", errAbsent},
	{"cannot open '", "': no such pool", errNoPool},
	{"cannot create '", "': out of space", storage.ErrNoSpace},
	{"cannot create '", "': dataset already exists", storage.ErrBusy}, // by an earlier zfs of the same create, that hung
	{"cannot create '", "': parent does not exist", errNoParent},
	{"cannot create '", "': parent is not a filesystem", storage.ErrPrecondition},
	{"cannot create '", "' must be ", storage.ErrInvalid},
	{"cannot create '", "': bad numeric value '", storage.ErrInvalid},
	{"cannot rename '", "': dataset already exists", storage.ErrConflict},
	{"cannot rename '", "': out of space", storage.ErrNoSpace},
	{"cannot rename '", "': dataset is busy", storage.ErrBusy},
	{"cannot set property for '", "': size is greater than available space", storage.ErrNoSpace},
	{"cannot set property for '", "': out of space", storage.ErrNoSpace},
	{"cannot set property for '", "' does not apply to datasets of this type", storage.ErrInvalid},
	{"cannot set property for '", "': invalid property", storage.ErrInvalid},
	{"cannot set property for '", "' must be one of '", storage.ErrInvalid},
	{"cannot set property for '", "' is readonly", storage.ErrInvalid},
	{"cannot set property for '", "': bad numeric value '", storage.ErrInvalid},
	{"cannot set property for '", "': numeric value is too large", storage.ErrInvalid},
	{"cannot set property for '", "': property value too long", storage.ErrInvalid},
	{"cannot destroy '", "': dataset is busy", storage.ErrBusy},
	{"cannot destroy '", "': volume has children", storage.ErrPrecondition},
	{"cannot destroy '", "': volume has dependent clones", storage.ErrPrecondition},
}

// classify gives a tool's failure its kind, by its text and by nothing else: the exit status
// is 1 or 255 whatever happened. Text we do not know stays unclassified.
func classify(err error) error {
	var exit *host.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	line, _, _ := strings.Cut(exit.Stderr, "\n")
	for _, s := range said {
		rest, ok := strings.CutPrefix(line, s.begin)
		if ok && strings.Contains(rest, s.end) {
			return fmt.Errorf("%w: %w", s.kind, err)
		}
	}
	return err
}
