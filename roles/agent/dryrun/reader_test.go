package dryrun_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
)

// recorder runs nothing and remembers what.
type recorder struct{ ran []string }

func (r *recorder) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	r.ran = append(r.ran, strings.Join(append([]string{name}, args...), " "))
	return nil, nil
}

func TestReader_Run(t *testing.T) {
	tests := map[string]string{ // "": refused
		"vgs --config a{} --options vg_name vg0": `vgs --nolocking --config a{} devices{hints="none"} --options vg_name vg0`,
		"lvs --options lv_name vg0/a":            "lvs --nolocking --options lv_name vg0/a",
		"zfs list -H tank":                       "zfs list -H tank",
		"zfs get volsize tank/a":                 "zfs get volsize tank/a",
		"zpool list -H -o health tank":           "zpool list -H -o health tank",
		"lvcreate --name a vg0":                  "",
		"lvchange --activate y vg0/a":            "",
		"lvremove --yes vg0/a":                   "",
		"vgmknodes vg0/a":                        "",
		"zfs create -V 1 tank/a":                 "",
		"zfs destroy tank/a":                     "",
		"zfs":                                    "",
		"zpool import tank":                      "",
		"modprobe nvmet":                         "",
		"mkfs.ext4 /dev/vg0/a":                   "",
	}
	for line, want := range tests {
		t.Run(line, func(t *testing.T) {
			words := strings.Fields(line)
			rec := &recorder{}
			_, err := dryrun.Reader{Runner: rec}.Run(t.Context(), words[0], words[1:]...)
			if diff := cmp.Diff(want, strings.Join(rec.ran, "\n")); diff != "" || (err == nil) != (want != "") {
				t.Errorf("Run(%s) = %v (-want +ran):\n%s", line, err, diff)
			}
		})
	}
}
