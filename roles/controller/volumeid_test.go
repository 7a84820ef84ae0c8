package controller

import "testing"

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

func TestVolumeName(t *testing.T) {
	for id, want := range map[string]string{"storage-1/nvmeof-tcp/lvm-lv/vg0/pvc-1": "pvc-1", "not ours": "not ours"} {
		if got := volumeName(id); got != want {
			t.Errorf("volumeName(%s) = %s, want %s", id, got, want)
		}
	}
}
