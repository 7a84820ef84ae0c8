// Package storage holds what every backend agrees on: the names and sizes of volumes, the
// Backend contract, and the kinds of failure a caller acts on.
package storage

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The kinds of failure a caller acts on. Anything else is an internal error.
var (
	ErrInvalid      = errors.New("invalid")             // a name, size or parameter no backend could accept
	ErrNotFound     = errors.New("not found")           // the tool itself said there is no such object
	ErrConflict     = errors.New("already exists")      // same name, another shape or another owner
	ErrNoSpace      = errors.New("no space")            // the pool cannot hold it
	ErrBusy         = errors.New("busy")                // the object is in use
	ErrPrecondition = errors.New("precondition failed") // layout, state or configuration does not allow it
	ErrOutOfRange   = errors.New("out of range")        // smaller than it already is
	ErrUnsupported  = errors.New("unsupported")         // this agent or kernel does not offer it
	ErrForeign      = errors.New("not this volume's")   // the object was not made for the lifecycle that asks
)

// BackendType is the backend token of the API.
type BackendType string

// The backend tokens (api.md 1).
const (
	ZFSZvol    BackendType = "zfs-zvol"
	ZFSDataset BackendType = "zfs-dataset"
	LVMLV      BackendType = "lvm-lv"
	Directory  BackendType = "directory"
)

// VolumeID is the agent volume ID: <pool>/<name>, the identifier an agent uses.
type VolumeID struct {
	Pool, Name string
}

// ParseVolumeID splits an agent volume ID at its only slash. Anything else is ErrInvalid.
func ParseVolumeID(s string) (VolumeID, error) {
	pool, name, ok := strings.Cut(s, "/")
	if !ok || pool == "" || name == "" || strings.Contains(name, "/") {
		return VolumeID{}, fmt.Errorf("%w: agent volume ID %q is not <pool>/<name>", ErrInvalid, s)
	}
	return VolumeID{pool, name}, nil
}

func (id VolumeID) String() string { return id.Pool + "/" + id.Name }

// Owner is the lifecycle a backend was made for: the UID of its PillarVolumeState. The
// backend keeps it with the object itself, from the command that makes it (an LV tag, a ZFS
// user property). So it is known whose an object is when every other record is lost, and
// what somebody else made under a volume's name is never touched.
type Owner string

var legalOwner = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Check answers ErrInvalid for what cannot be kept with every backend.
func (o Owner) Check() error {
	if !legalOwner.MatchString(string(o)) {
		return fmt.Errorf("%w: volume UID %q: want 1 to 64 of A-Z a-z 0-9 . _ -", ErrInvalid, o)
	}
	return nil
}

// Owns tells whether what is marked as mark's is o's. No owner owns nothing.
func (o Owner) Owns(mark Owner) bool { return o != "" && o == mark }

// Spec asks for a volume. Exactly the member of Backend is set.
type Spec struct {
	ID      VolumeID
	Owner   Owner
	Bytes   int64
	Backend BackendType
	LVM     *LVMParams
	ZFS     *ZFSParams
}

// LVMParams are the resolved LVM settings of a volume.
type LVMParams struct {
	VolumeGroup string
	ThinPool    string // empty: none
	Mode        string // "linear" or "thin"
}

// ZFSParams are the resolved ZFS settings of a volume.
type ZFSParams struct {
	Pool, ParentDataset string
	Properties          map[string]string
}

// Volume is a volume as its backend reports it.
type Volume struct {
	ID         VolumeID
	Owner      Owner // empty: made by somebody else
	Bytes      int64 // actual size
	DevicePath string
	Device     DeviceID // that Activate proved to be this volume's
}

// DeviceID tells a block device from every other since the machine's boot: numbers are used
// again, and a path may lead to another device at any time. The zero value is not known.
type DeviceID struct {
	Major, Minor uint32
	Sequence     uint64 // diskseq in sysfs, since Linux 5.15
}

// Activated is what became of one of many volumes.
type Activated struct {
	Device DeviceID
	Err    error
}

// Capacity of a pool in bytes.
type Capacity struct {
	Total, Available int64
}

// Pool is a pool as a backend discovered it.
type Pool struct {
	Name     string
	Type     string // "zfs", "lvm", "directory"
	Capacity Capacity
	ThinPool string // LVM
	Parent   string // ZFS
}

// Backend makes, grows and removes volumes in one configured pool. Every method is idempotent.
// One that acts on a volume is told whose it is; an object of that name that was not made for
// this owner is ErrForeign, and untouched.
// What Create, Expand and Delete answered outlives a power cut.
// storagetest.Run holds each implementation to this contract.
type Backend interface {
	// Create makes the volume, or answers the one that is there if its kind and rounded
	// size are equal; any other is ErrConflict. A new volume shows nothing of an earlier
	// one, and is marked as its owner's at every moment that it exists. ErrInvalid, ErrPrecondition (layout), ErrNoSpace.
	Create(ctx context.Context, s Spec) (Volume, error)
	// Inspect answers what has the name, whosever it is, or ErrNotFound if the tool says
	// there is nothing.
	Inspect(ctx context.Context, name string) (Volume, error)
	// Activate makes the volume's device usable after a reboot. A device that may yet come
	// is an fs.ErrNotExist.
	Activate(ctx context.Context, name string, owner Owner) (Volume, error)
	// ActivateAll is Activate for many volumes at the price of one. It answers one result per
	// name; without an error the device is there, opens, and is this volume's.
	ActivateAll(ctx context.Context, owners map[string]Owner) map[string]Activated
	// Expand makes the volume as large as bytes, rounded up as in Create, with its content
	// and its users undisturbed; that size already is success. It never makes one smaller:
	// ErrOutOfRange. Without the space nothing changes: ErrNoSpace. ErrNotFound as Inspect,
	// ErrPrecondition for one that its Create never finished.
	Expand(ctx context.Context, name string, owner Owner, bytes int64) (Volume, error)
	// Delete removes exactly this volume, finished or not. Absent is success; open or held
	// is ErrBusy.
	Delete(ctx context.Context, name string, owner Owner) error
	// List answers the volumes pillar could have made. It asserts no ownership.
	List(ctx context.Context) ([]Volume, error)
	// Pool answers the pool with its capacity, or ErrNotFound if the tool says there is none.
	Pool(ctx context.Context) (Pool, error)
}
