package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/filesystem"
)

// refusedNFS are the nfs(5) options nobody may set (files.md F-48).
var refusedNFS = []string{
	"soft", "softerr", "nohard", "bg", "nolock", "noresvport", "udp", "rdma", "addr", "clientaddr",
	"v2", "v3", "v4", "v4.0", "v4.1",
}

// fixedNFS are those pillar sets itself: they may be repeated, not changed.
var fixedNFS = map[string]string{
	"vers": "4.2", "nfsvers": "4.2", "minorversion": "2", "proto": "tcp", "port": "2049",
	"sec": "sys", "xprtsec": "none", "local_lock": "none",
}

// checkNFSOptions refuses options that contradict how pillar mounts NFS: version 4.2,
// TCP, hard, port 2049. An element may be several options, joined by commas.
func checkNFSOptions(options []string) error {
	if err := filesystem.CheckMountOptions(options); err != nil {
		return err
	}
	for _, element := range options {
		for one := range strings.SplitSeq(element, ",") {
			key, value, _ := strings.Cut(one, "=")
			fixed, known := fixedNFS[key]
			switch {
			case known && value != fixed:
				return fmt.Errorf("%w: mount option %q is not allowed: pillar mounts with %s=%s", storage.ErrInvalid, one, key, fixed)
			case slices.Contains(refusedNFS, key), strings.HasPrefix(key, "mount"):
				return fmt.Errorf("%w: mount option %q is not allowed: pillar mounts NFS 4.2 over TCP, hard, from one address", storage.ErrInvalid, one)
			}
		}
	}
	return nil
}

// bindOptions are what a bind of an adopted directory may be mounted with (files.md F-142).
var bindOptions = []string{"ro", "nosuid", "nodev", "noexec", "noatime", "relatime"}

func checkBindOptions(options []string) error {
	for _, element := range options {
		for one := range strings.SplitSeq(element, ",") {
			if !slices.Contains(bindOptions, one) {
				return fmt.Errorf("%w: mount option %q is not allowed: a local directory takes %s", storage.ErrInvalid, one, strings.Join(bindOptions, ", "))
			}
		}
	}
	return nil
}
