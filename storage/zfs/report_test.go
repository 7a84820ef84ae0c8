package zfs

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

func TestParseRows(t *testing.T) {
	got, err := parseRows([]byte(parentRow + zvolRow))
	want := map[string]report{
		"tank/k8s": {name: "tank/k8s", kind: "filesystem", mode: "-", used: 12132352, available: 860141568},
		dataset: {name: dataset, kind: "volume", size: volsize, block: 16384, used: 12107776, available: 872237056,
			reservation: 12107776, mode: "default", mark: owner},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(report{})); err != nil || diff != "" {
		t.Errorf("parseRows = %v (-want +got):\n%s", err, diff)
	}
}

func TestParseRows_refuses(t *testing.T) {
	tests := map[string]string{
		"a column less":     "tank/k8s/pvc-1\tvolume\t10010624\t16384\t12107776\t872237056\t12107776\tdefault\n",
		"a tab in the mark": strings.TrimSuffix(zvolRow, "\n") + "\tx\n",
		"no volsize":        strings.Replace(zvolRow, "10010624", "-", 1),
		"no volblocksize":   strings.Replace(zvolRow, "16384", "0", 1),
		"a negative size":   strings.Replace(zvolRow, "10010624", "-10010624", 1),
		"no bytes":          strings.Replace(zvolRow, "10010624", "10.0M", 1),
		"no name":           strings.Replace(zvolRow, dataset, "", 1),
		"an empty line":     zvolRow + "\n",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := parseRows([]byte(text)); err == nil {
				t.Errorf("parseRows(%q) = %+v, want an error", text, got)
			}
		})
	}
}

func FuzzParseRows(f *testing.F) {
	f.Add(parentRow + zvolRow)
	f.Add(halfMade)
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := parseRows([]byte(text))
		for name, r := range rows {
			if err == nil && (name == "" || r.size < 0 || r.available < 0 || r.volume() && r.size == 0) {
				t.Errorf("parseRows(%q) accepts %+v", text, r)
			}
		}
	})
}

// What the tools printed in a lab guest (OpenZFS 2.3.2).
func TestClassify(t *testing.T) {
	kinds := []error{storage.ErrInvalid, storage.ErrNotFound, storage.ErrConflict, storage.ErrNoSpace, storage.ErrBusy, storage.ErrPrecondition}
	tests := map[string]error{
		"cannot create 'tank/k8s/pvc-1': dataset already exists":                                                        storage.ErrBusy,
		"cannot create 'tank/k8s/pvc-2': out of space":                                                                  storage.ErrNoSpace,
		"cannot set property for 'tank/k8s/pvc-1': size is greater than available space":                                storage.ErrNoSpace,
		"cannot create 'tank/nosuch/pvc-12': parent does not exist":                                                     storage.ErrPrecondition,
		"cannot create 'tank/k8s/pvc-12/inside': parent is not a filesystem":                                            storage.ErrPrecondition,
		"cannot create 'tank/k8s/pvc-7': 'volblocksize' must be power of 2 from 512B to 16M":                            storage.ErrInvalid,
		"cannot set property for 'tank/k8s/pvc-7': 'compression' must be one of 'on | off | lzjb'":                      storage.ErrInvalid,
		"cannot set property for 'tank/k8s/pvc-7': invalid property 'foo'":                                              storage.ErrInvalid,
		"cannot set property for 'tank/k8s/pvc-7': 'quota' does not apply to datasets of this type":                     storage.ErrInvalid,
		"cannot set property for 'tank/k8s/pvc-7': 'used' is readonly":                                                  storage.ErrInvalid,
		"cannot set property for 'tank/k8s/pvc-7': bad numeric value 'abc'":                                             storage.ErrInvalid,
		"cannot set property for 'tank/k8s/pvc-7': numeric value is too large":                                          storage.ErrInvalid,
		"cannot set property for 'tank/k8s/pvc-7': property value too long":                                             storage.ErrInvalid,
		"cannot create 'tank/k8s/pvc-7': bad numeric value 'abc'":                                                       storage.ErrInvalid,
		"cannot destroy 'tank/r': dataset is busy":                                                                      storage.ErrBusy,
		"cannot destroy 'tank/k8s/pvc-4': volume has children\nuse '-r' to destroy the following datasets:\ntank/k8s@a": storage.ErrPrecondition,
		"cannot rename 'tank/k8s/pvc-2': dataset already exists":                                                        storage.ErrConflict,
		"cannot open 'tank/k8s/pvc-1': dataset does not exist":                                                          nil, // alone it proves nothing
		"cannot open 'tank': no such pool":                                                                              nil,
		"cannot set property for 'tank/k8s': 'volsize' must be a multiple of volume block size (16K)":                   nil,
		"Permission denied the ZFS utilities must be run as root.":                                                      nil,
		"the message is: cannot create 'a': out of space":                                                               nil,
		"cannot open 'tank/k8s/pvc-1': pool I/O is currently suspended":                                                 nil,
	}
	for text, want := range tests {
		err := classify(&host.ExitError{Argv: []string{"zfs"}, Code: 1, Stderr: text})
		for _, kind := range kinds {
			if errors.Is(err, kind) != (kind == want) {
				t.Errorf("classify(%q) = %v, want %v", text, err, want)
			}
		}
	}
}

func FuzzAbsentOf(f *testing.F) {
	f.Add("cannot open 'tank/k8s/pvc-1': dataset does not exist\n")
	f.Add("cannot open ''': dataset does not exist")
	f.Fuzz(func(t *testing.T, text string) {
		absent, err := absentOf(&host.ExitError{Stderr: text}, []string{"tank/k8s", dataset})
		if err == nil && strings.Count(text, "does not exist") < len(absent) {
			t.Errorf("absentOf(%q) = %v", text, absent)
		}
	})
}
