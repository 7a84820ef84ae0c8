package filesystem

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/storage/host"
)

const profileText = `# V5 features
[metadata]
nrext64=0
bigtime=1
crc = 1
rmapbt=0

[inode]
sparse=1
`

// withProfile answers a root that holds the xfs profile.
func withProfile(t *testing.T, text string) host.Root {
	t.Helper()
	root := host.Root(t.TempDir())
	path := root.Path(xfsProfile)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestProfileOptions(t *testing.T) {
	tests := map[string]struct {
		user, want []string
	}{
		"nothing set":        {nil, []string{"-i", "nrext64=0,sparse=1", "-m", "bigtime=1,crc=1,rmapbt=0"}},
		"one key replaced":   {[]string{"-m", "rmapbt=1"}, []string{"-i", "nrext64=0,sparse=1", "-m", "bigtime=1,crc=1"}},
		"attached":           {[]string{"-irmapbt=1,sparse=0", "-K"}, []string{"-i", "nrext64=0", "-m", "bigtime=1,crc=1,rmapbt=0"}},
		"a section replaced": {[]string{"-i", "sparse=0,nrext64=1"}, []string{"-m", "bigtime=1,crc=1,rmapbt=0"}},
		"another key":        {[]string{"-i", "exchange=1", "-L", "crc=0"}, []string{"-i", "nrext64=0,sparse=1", "-m", "bigtime=1,crc=1,rmapbt=0"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Tools{Root: withProfile(t, profileText)}.profileOptions(tc.user)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProfileOptions_Unusable(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "no section": "crc=1\n", "unknown section": "[realtime]\nx=1\n", "no value": "[inode]\nsparse\n", "two values": "[inode]\nsparse=1,size=2\n",
	} {
		if got, err := (Tools{Root: withProfile(t, text)}).profileOptions(nil); err == nil {
			t.Errorf("%s: options = %q, want an error", name, got)
		}
	}
	if got, err := (Tools{Root: host.Root(t.TempDir())}).profileOptions(nil); err == nil {
		t.Errorf("no file: options = %q, want an error", got)
	}
}

func FuzzParseProfile(f *testing.F) {
	f.Add(profileText)
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := parseProfile(text)
		if err == nil && len(settings) == 0 {
			t.Errorf("parseProfile(%q) = nothing", text)
		}
	})
}
