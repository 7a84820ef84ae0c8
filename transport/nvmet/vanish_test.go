package nvmet

import (
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

// vanishing is a configfs in which, just before a name is read, another call takes away what
// it is of.
type vanishing struct {
	configfs.FS
	before string
	remove func()
}

func (v *vanishing) look(name string) {
	if remove := v.remove; remove != nil && strings.HasSuffix(name, v.before) {
		v.remove = nil
		remove()
	}
}

func (v *vanishing) ReadFile(name string) ([]byte, error)  { v.look(name); return v.FS.ReadFile(name) }
func (v *vanishing) ReadDir(name string) ([]string, error) { v.look(name); return v.FS.ReadDir(name) }

// A subsystem that is unexported while all are looked at is none, and no failure: of many
// volumes that are deleted at once each looks at all exports.
func TestTarget_lookWhileUnexported(t *testing.T) {
	for _, before := range []string{
		nqn + "/namespaces", nqn + "/namespaces/1/device_path", nqn + "/namespaces/1/enable",
		nqn + "/attr_allow_any_host", nqn + "/allowed_hosts", nqn + "/attr_serial",
	} {
		for _, look := range []string{"List", "Users"} {
			t.Run(look+" "+strings.TrimPrefix(before, nqn), func(t *testing.T) {
				v := &vanishing{FS: configfstest.New(), before: before}
				tgt := New(configfs.On(v), Config{IdentityDir: t.TempDir(), Number: func(string) (uint64, error) { return 1, nil }})
				exporting()(t, tgt)
				v.remove = func() { must(t, New(configfs.On(v.FS), tgt.cfg).Unexport(t.Context(), volume, device)) }
				found, err := 0, error(nil)
				if look == "List" {
					list, e := tgt.List(t.Context())
					found, err = len(list), e
				} else {
					users, e := tgt.Users(t.Context(), 0, 2)
					found, err = len(users), e
				}
				if err != nil || v.remove == nil && found != 0 {
					t.Errorf("%s = %d exports, %v, want none", look, found, err)
				}
			})
		}
	}
}
