package zfs

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/storage"
)

// legalName is narrower than ZFS's rule: device links cannot have the spaces it allows
// (H-38), and no name shall look like an option.
var legalName = regexp.MustCompile(`^[A-Za-z0-9_.:][A-Za-z0-9_.:-]*$`)

// nameMax is the longest dataset name in bytes, the pool included (zfs(8)).
const nameMax = 255

// CheckName answers storage.ErrInvalid for what cannot name a zvol in the pool (B-218).
func (c Config) CheckName(name string) error {
	if err := checkComponent("volume", name); err != nil {
		return err
	}
	if full := c.dataset(name); len(full) > nameMax {
		return fmt.Errorf("%w: dataset name %q has %d bytes, ZFS takes %d", storage.ErrInvalid, full, len(full), nameMax)
	}
	if len(c.unfinished(name, "")) > nameMax {
		return fmt.Errorf("%w: parent dataset %s leaves no room for names, use a shorter one", storage.ErrInvalid, c.parent())
	}
	return nil
}

// Check answers storage.ErrInvalid for what names no pool or no dataset below it.
func (c Config) Check() error {
	if first := c.Pool + "-"; !('a' <= first[0]|0x20 && first[0]|0x20 <= 'z') {
		return fmt.Errorf("%w: pool name %q does not begin with a letter", storage.ErrInvalid, c.Pool)
	}
	parts := []string{c.Pool}
	if c.ParentDataset != "" {
		parts = append(parts, strings.Split(c.ParentDataset, "/")...)
	}
	for _, part := range parts {
		if err := checkComponent("dataset", part); err != nil {
			return err
		}
	}
	return nil
}

func checkComponent(kind, name string) error {
	if name == "." || name == ".." || !legalName.MatchString(name) {
		return fmt.Errorf("%w: %s name %q: want A-Z a-z 0-9 - _ . : and no - first", storage.ErrInvalid, kind, name)
	}
	return nil
}

// check holds a request against the layout (B-202, B-203).
func (p *Pool) check(s storage.Spec) error {
	if err := errors.Join(p.cfg.CheckName(s.ID.Name), s.Owner.Check()); err != nil {
		return err
	}
	switch {
	case s.Backend != storage.ZFSZvol || s.ZFS == nil:
		return fmt.Errorf("%w: ZFS parameters missing (backend %q)", storage.ErrInvalid, s.Backend)
	case s.ID.Pool != p.cfg.Pool || s.ZFS.Pool != p.cfg.Pool:
		return fmt.Errorf("%w: pool %q in the parameters, this is %q", storage.ErrInvalid, s.ZFS.Pool, p.cfg.Pool)
	case s.Bytes <= 0:
		return fmt.Errorf("%w: size of %d bytes", storage.ErrInvalid, s.Bytes)
	case s.ZFS.ParentDataset != p.cfg.ParentDataset:
		return fmt.Errorf("%w: parent dataset %q, the agent has %q", storage.ErrPrecondition, s.ZFS.ParentDataset, p.cfg.ParentDataset)
	}
	return checkProperties(s.ZFS.Properties)
}

// ourNamespace is that of the user properties pillar sets itself (zfsprops(7)).
const ourNamespace = "pillar-csi.bhyoo.com:"

// legalProperty is what zfsprops(7) lets a property be called; a user property has a colon.
var legalProperty = regexp.MustCompile(`^[a-z0-9][a-z0-9:._-]{0,255}$`)

// Owned are the properties no request may set: pillar does, they name a file of the storage
// node (keylocation), or they are second names of a property. zfs(8) takes the name of a
// property's column, too (zfs list -o), and what a request says in a second name no check of
// the first would see.
var Owned = []string{"keylocation", "rdonly", "readonly", "refreserv", "reserv", "reservation", "volblock", "volsize"}

// modes are the values of volmode with which there is a device (zfsprops(7)).
var modes = []string{"default", "full", "geom", "dev"}

// CheckProperty refuses what would undo what a volume stands on, and what is no property at
// all: storage.ErrInvalid. The others are zfs's to judge.
func CheckProperty(key, value string) error {
	why := ""
	switch {
	case !legalProperty.MatchString(key):
		why = "is no name of a ZFS property"
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		why = "contains a control character"
	case slices.Contains(Owned, key) || strings.HasPrefix(key, ourNamespace):
		why = "is set by pillar"
	case key == "volmode" && value == "none":
		why = "none would leave the volume without a device"
	case key == "volmode" && !slices.Contains(modes, value): // zfs would say so too late
		why = fmt.Sprintf("%q is none of %s", value, strings.Join(modes, ", "))
	case key == "refreservation" && value != "none" && value != "0":
		// A number follows no expansion; auto is what pillar sets.
		why = "follows the size by itself; only none is possible, for a sparse volume"
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", storage.ErrInvalid, why)
}

func checkProperties(properties map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		if err := CheckProperty(key, properties[key]); err != nil {
			return fmt.Errorf("ZFS property %q: %w", key, err)
		}
	}
	return nil
}

// sparse tells whether the properties ask for a volume that reserves nothing.
func sparse(properties map[string]string) bool { return properties["refreservation"] != "" }
