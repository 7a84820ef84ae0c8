package filesystem

import (
	"errors"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
)

func TestCheckMountOptions(t *testing.T) {
	tests := map[string]struct {
		options string // joined by spaces
		want    string // in the message; empty: accepted
	}{
		"nothing":              {"", ""},
		"harmless":             {"noatime nodev,nosuid commit=30 barrier=1 data=ordered errors=remount-ro discard", ""},
		"xfs":                  {"nouuid inode64 logbsize=256k allocsize=1m", ""},
		"read-only":            {"ro", ""},
		"bind":                 {"bind", "another mount"},
		"remount in a list":    {"noatime,remount", `"remount" is not allowed`},
		"propagation":          {"rshared", "another mount"},
		"loop device":          {"loop=/dev/loop0", "another device"},
		"offset":               {"offset=4096", "another device"},
		"other source":         {"source=/dev/sda", "another device"},
		"journal elsewhere":    {"journal_path=/dev/sda", "another device"},
		"log elsewhere":        {"logdev=/dev/sda", "another device"},
		"realtime elsewhere":   {"rtdev=/dev/sda", "another device"},
		"other superblock":     {"sb=32768", "another device"},
		"journal not replayed": {"noload", "protects the data"},
		"log not replayed":     {"norecovery", "protects the data"},
		"no barriers":          {"nobarrier", "protects the data"},
		"barriers off":         {"barrier=0", "protects the data"},
		"stale content":        {"data=writeback", "protects the data"},
		"panic":                {"errors=panic", "protects the data or the node"},
		"word of fstab":        {"_netdev", "fstab(5)"},
		"word of mount":        {"X-mount.mkdir", "fstab(5)"},
		"comment":              {"x-systemd.automount", "fstab(5)"},
		"empty in a list":      {"noatime,,ro", "empty"},
		"spaces around":        {"\tro", "spaces"},
		"NUL":                  {"comm\x00it=3", "control character"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options := strings.Split(test.options, " ")
			if test.options == "" {
				options = nil
			}
			err := CheckMountOptions(options)
			if test.want == "" && err == nil {
				return
			}
			if test.want == "" || !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("CheckMountOptions(%q) = %v, want ErrInvalid with %q", options, err, test.want)
			}
		})
	}
}
