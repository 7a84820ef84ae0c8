package controller

import (
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
)

func TestParseVolumeID(t *testing.T) {
	tests := map[string]struct {
		in string
		ok bool
	}{
		"block volume":       {"storage-1/nvmeof-tcp/lvm-lv/vg0/pvc-1", true},
		"three parts":        {"storage-1/nvmeof-tcp/lvm-lv", false},
		"no volume name":     {"storage-1/nvmeof-tcp/lvm-lv/vg0", false},
		"empty agent":        {"/nvmeof-tcp/lvm-lv/vg0/pvc-1", false},
		"too many parts":     {"storage-1/nvmeof-tcp/lvm-lv/vg0/k8s/pvc-1", false},
		"somebody else's ID": {"vol-0123456789", false},
		"nothing":            {"", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			id, ok := parseVolumeID(test.in)
			if ok != test.ok || (ok && id.String() != test.in) {
				t.Errorf("parseVolumeID(%q) = %v, %t, want %t and the same text", test.in, id, ok, test.ok)
			}
		})
	}
}

func TestCheckName(t *testing.T) {
	tests := map[string]struct {
		backend storage.BackendType
		name    string
		legal   bool
	}{
		"claim name":           {storage.LVMLV, "pvc-0b8c", true},
		"longest LV name":      {storage.LVMLV, strings.Repeat("a", 127), true},
		"too long for an LV":   {storage.LVMLV, strings.Repeat("a", 128), false},
		"reserved infix":       {storage.LVMLV, "x_tdata", false},
		"reserved prefix":      {storage.LVMLV, "pvmove0", false},
		"leading dash":         {storage.LVMLV, "-x", false},
		"dots":                 {storage.ZFSZvol, "..", false},
		"zvol with colon":      {storage.ZFSZvol, "a:b", true},
		"zvol with plus":       {storage.ZFSZvol, "a+b", false},
		"target name too long": {storage.ZFSZvol, strings.Repeat("a", 200), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := checkName(test.backend, storage.VolumeID{Pool: "vg0", Name: test.name})
			if (err == nil) != test.legal || (err != nil && csiserve.CodeOf(err) != csiserve.InvalidArgument) {
				t.Errorf("checkName(%s, %q) = %v, want legal %t", test.backend, test.name, err, test.legal)
			}
		})
	}
}
