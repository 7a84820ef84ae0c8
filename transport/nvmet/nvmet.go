// Package nvmet exports block devices through the kernel's NVMe-oF/TCP target. It owns,
// below /sys/kernel/config/nvmet, the subsystems of its own prefix and what hangs on them:
//
//	hosts/<host NQN>/                     shared, never removed
//	subsystems/<prefix><vg>.<volume>/     one per volume
//	├── attr_allow_any_host               0 with an ACL
//	├── attr_serial                       derived from the NQN
//	├── allowed_hosts/<host NQN>          link: may connect
//	└── namespaces/1/
//	    ├── device_path
//	    ├── device_uuid, device_nguid     derived from the NQN, or pinned
//	    ├── enable                        1 opens the device, not exclusively
//	    └── revalidate_size               only takes writes: look at the device again
//	ports/<id>/                           one per address, shared, never removed
//	├── addr_trtype, _adrfam, _traddr, _trsvcid
//	├── param_inline_data_size, param_mdts
//	└── subsystems/<subsystem NQN>        link: reachable; always the last write
//
// Nothing is remembered that the kernel can be asked, except an identity that differs from
// the derived one while hosts may know it: Config.IdentityDir holds one record for each.
package nvmet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
)

// Prefix begins the NQN of every subsystem that is ours (block.md B-22).
const Prefix = "nqn.2026-01.com.bhyoo.pillar-csi:"

// Config is what a Target needs besides configfs.
type Config struct {
	IdentityDir string    // pinned identities, one durable record per volume
	Root        host.Root // where sys/module is looked for

	// Number answers the number of the device at a path; nil asks the kernel. A missing one
	// is an fs.ErrNotExist.
	Number func(path string) (uint64, error)

	// Unbounded, if set, is called for an export that asks for a transfer limit which this
	// kernel's ports cannot hold: the node then limits itself (block.md B-253).
	Unbounded func()

	// Quiet, if set, keeps hosts out of a portal until loud is called: KeepOut. Unquiet, if set,
	// is told why that cannot be.
	Quiet   func(portal netip.AddrPort) (loud func() error, err error)
	Unquiet func(error)
}

// Target is the kernel's NVMe-oF/TCP target. Calls for different volumes may overlap; the
// caller serialises those for one volume.
type Target struct {
	cfg   Config
	nvmet configfs.Dir
	names sync.Map // NQN -> *sync.Mutex: two volumes can derive the same

	ports sync.Mutex // choosing and writing a port, which volumes share
	last  map[asks]lastLink
}

// lock keeps other calls away from a subsystem: between looking whose device it has and
// the writes that follow, the volume that shares the NQN must not change it.
func (t *Target) lock(nqn string) (unlock func()) {
	mu, _ := t.names.LoadOrStore(nqn, new(sync.Mutex))
	mu.(*sync.Mutex).Lock()
	return mu.(*sync.Mutex).Unlock
}

// New answers the target below fs, the root of configfs.
func New(fs configfs.Dir, cfg Config) *Target {
	if cfg.Number == nil {
		cfg.Number = deviceNumber
	}
	return &Target{cfg: cfg, nvmet: fs.Sub("nvmet"), last: map[asks]lastLink{}}
}

// NQN derives a volume's subsystem NQN from its agent volume ID. It is not injective:
// who touches a subsystem compares its device first. transport.ErrInvalid if the name
// would be too long or hold a character no NQN may.
func NQN(volume string) (string, error) {
	if volume == "" {
		return "", fmt.Errorf("%w: empty agent volume ID", transport.ErrInvalid)
	}
	nqn, err := transport.ParseNQN(Prefix + strings.ReplaceAll(volume, "/", "."))
	if err != nil {
		return "", fmt.Errorf("subsystem NQN of volume %q: %w", volume, err)
	}
	return string(nqn), nil
}

// Available says whether this kernel can export over NVMe/TCP now. What is missing is a
// transport.ErrUnsupported that names it; another error means it could not be told.
func (t *Target) Available(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ok, err := t.nvmet.Sub("subsystems").Exists()
	if err != nil {
		return fmt.Errorf("look for nvmet in configfs: %w", err)
	}
	if !ok {
		return fmt.Errorf("%w: no nvmet in configfs: configfs is not mounted or the module nvmet is not loaded", transport.ErrUnsupported)
	}
	_, err = os.Stat(t.cfg.Root.Path("sys/module/nvmet_tcp"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the module nvmet_tcp is not loaded", transport.ErrUnsupported)
	}
	return err
}

func (t *Target) subsystemDir(nqn string) configfs.Dir { return t.nvmet.Sub("subsystems", nqn) }

func (t *Target) recordPath(volume string) string {
	return filepath.Join(t.cfg.IdentityDir, durable.Name(volume)+".json")
}
