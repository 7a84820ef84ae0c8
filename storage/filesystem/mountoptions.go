package filesystem

import (
	"fmt"
	"strings"

	"github.com/pillar-csi/pillar/storage"
)

// The reasons a mount option is refused.
const (
	otherMount = "it would change another mount, or make another kind of one"
	otherPlace = "it names another device, file or place on the device"
	unsafe     = "it gives up what protects the data or the node"
	fstabWord  = "it is a word of fstab(5) and mount(8), not of the kernel"
)

// refusedMountOptions are what no user may set on a filesystem of a volume (api.md 10.3
// leaves the list to us). Everything else is the kernel's to judge. A key with "=" is
// refused with that value alone.
var refusedMountOptions = map[string]string{
	"bind": otherMount, "rbind": otherMount, "move": otherMount, "remount": otherMount,
	"shared": otherMount, "rshared": otherMount, "slave": otherMount, "rslave": otherMount,
	"private": otherMount, "rprivate": otherMount, "unbindable": otherMount, "runbindable": otherMount,

	"loop": otherPlace, "offset": otherPlace, "sizelimit": otherPlace, "source": otherPlace, "sb": otherPlace,
	"journal_dev": otherPlace, "journal_path": otherPlace, "logdev": otherPlace, "rtdev": otherPlace,

	"noload": unsafe, "norecovery": unsafe, // half a transaction becomes the content
	"nobarrier": unsafe, "barrier=0": unsafe, // what was synced is lost with the power
	"data=writeback": unsafe, // after a crash a file can show what the pool held before
	"errors=panic":   unsafe, "abort": unsafe, "test_dummy_encryption": unsafe,

	"auto": fstabWord, "noauto": fstabWord, "nofail": fstabWord, "_netdev": fstabWord, "comment": fstabWord,
	"user": fstabWord, "nouser": fstabWord, "users": fstabWord, "owner": fstabWord, "group": fstabWord,
	"helper": fstabWord, "uhelper": fstabWord,
}

// CheckMountOptions refuses options that reach beyond the volume or give up its safety.
// An element may be several options, joined by commas. It returns storage.ErrInvalid with
// the words "mount option ... is not allowed" and the reason.
func CheckMountOptions(options []string) error {
	for _, element := range options {
		for one := range strings.SplitSeq(element, ",") {
			if why := refusedMountOption(one); why != "" {
				return fmt.Errorf("%w: mount option %q is not allowed: %s", storage.ErrInvalid, one, why)
			}
		}
	}
	return nil
}

func refusedMountOption(option string) string {
	key, _, _ := strings.Cut(option, "=")
	switch lower := strings.ToLower(key); {
	case strings.TrimSpace(key) != key || key == "":
		return "it is empty or has spaces around it"
	case strings.ContainsFunc(option, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "it contains a control character"
	case strings.HasPrefix(lower, "x-"):
		return fstabWord
	}
	if why := refusedMountOptions[key]; why != "" {
		return why
	}
	return refusedMountOptions[option]
}
