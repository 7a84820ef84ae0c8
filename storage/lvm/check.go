package lvm

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pillar-csi/pillar/storage"
)

var legalName = regexp.MustCompile(`^[A-Za-z0-9+_.][A-Za-z0-9+_.-]*$`)

// reserved are the names lvm(8) keeps for itself ("VALID NAMES").
var (
	reservedPrefixes = []string{"snapshot", "pvmove"}
	reservedInfixes  = []string{"_cdata", "_cmeta", "_corig", "_mlog", "_mimage", "_pmspare",
		"_rimage", "_rmeta", "_tdata", "_tmeta", "_vorigin", "_vdata"}
)

// nameMax is the longest LV or VG name in bytes (D-15).
const nameMax = 127

// CheckName answers storage.ErrInvalid for what cannot name an LV (B-226).
func CheckName(name string) error {
	if err := checkShape("LV", name); err != nil {
		return err
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(name, p) {
			return fmt.Errorf("%w: LV name %q: LVM reserves names that start with %q", storage.ErrInvalid, name, p)
		}
	}
	for _, in := range reservedInfixes {
		if strings.Contains(name, in) {
			return fmt.Errorf("%w: LV name %q: LVM reserves names that contain %q", storage.ErrInvalid, name, in)
		}
	}
	return nil
}

// CheckGroup answers storage.ErrInvalid for what cannot name a volume group.
func CheckGroup(name string) error { return checkShape("VG", name) }

func checkShape(kind, name string) error {
	if len(name) > nameMax {
		return fmt.Errorf("%w: %s name %q has %d bytes, at most %d", storage.ErrInvalid, kind, name, len(name), nameMax)
	}
	if name == "." || name == ".." || !legalName.MatchString(name) {
		return fmt.Errorf("%w: %s name %q: want A-Z a-z 0-9 + _ . - and no - first", storage.ErrInvalid, kind, name)
	}
	return nil
}

// check holds a request against the group's layout (B-202, B-203, B-220).
func (g *Group) check(s storage.Spec) error {
	if err := errors.Join(CheckName(s.ID.Name), s.Owner.Check()); err != nil {
		return err
	}
	switch {
	case s.Backend != storage.LVMLV || s.LVM == nil:
		return fmt.Errorf("%w: LVM parameters missing (backend %q)", storage.ErrInvalid, s.Backend)
	case s.ID.Pool != g.cfg.VolumeGroup || s.LVM.VolumeGroup != g.cfg.VolumeGroup:
		return fmt.Errorf("%w: volume group %q in the parameters, this is %q", storage.ErrInvalid, s.LVM.VolumeGroup, g.cfg.VolumeGroup)
	case s.Bytes <= 0:
		return fmt.Errorf("%w: size of %d bytes", storage.ErrInvalid, s.Bytes)
	}
	return g.checkLayout(s.LVM)
}

func (g *Group) checkLayout(p *storage.LVMParams) error {
	switch p.Mode {
	case Linear:
		if p.ThinPool != "" && p.ThinPool != g.cfg.ThinPool {
			return g.otherPool(p)
		}
		return nil // beside a configured thin pool, too, if the request names none
	case Thin:
		if g.cfg.ThinPool == "" || p.ThinPool != g.cfg.ThinPool {
			return g.otherPool(p)
		}
		return nil
	default:
		return fmt.Errorf("%w: LVM mode %q, want linear or thin", storage.ErrInvalid, p.Mode)
	}
}

func (g *Group) otherPool(p *storage.LVMParams) error {
	return fmt.Errorf("%w: %s volume in thin pool %q, the agent has %q", storage.ErrPrecondition, p.Mode, p.ThinPool, g.cfg.ThinPool)
}
