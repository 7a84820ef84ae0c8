package filesystem

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
)

func TestCheckOptions(t *testing.T) {
	tests := map[string]struct {
		fstype  string
		options []string
		ok      bool
	}{
		"none":                          {"ext4", nil, true},
		"value apart":                   {"ext4", []string{"-L", "data"}, true},
		"value attached":                {"ext4", []string{"-Ldata"}, true},
		"several":                       {"ext4", []string{"-b", "4096", "-O", "^has_journal,quota", "-E", "nodiscard,lazy_itable_init=0", "-q"}, true},
		"journal size":                  {"ext4", []string{"-J", "size=64"}, true},
		"xfs suboptions":                {"xfs", []string{"-i", "exchange=1", "-n", "parent=1", "-K"}, true},
		"xfs inside log":                {"xfs", []string{"-linternal=1,size=64m"}, true},
		"journal on another device":     {"ext4", []string{"-J", "device=/dev/sda"}, false},
		"journal by label":              {"ext4", []string{"-J", "size=4,device=LABEL=x"}, false},
		"journal device feature":        {"ext4", []string{"-O", "journal_dev"}, false},
		"offset":                        {"ext4", []string{"-E", "offset=4096"}, false},
		"root directory from a tree":    {"ext4", []string{"-d", "etc"}, false},
		"bad blocks file":               {"ext4", []string{"-l", "list"}, false},
		"undo file":                     {"ext4", []string{"-z", "undo"}, false},
		"dry run":                       {"ext4", []string{"-n"}, false},
		"superblocks only":              {"ext4", []string{"-S"}, false},
		"version":                       {"ext4", []string{"-V"}, false},
		"type":                          {"ext4", []string{"-t", "ext2"}, false},
		"positional":                    {"ext4", []string{"/dev/sda"}, false},
		"positional after a flag":       {"ext4", []string{"-q", "1000"}, false},
		"clustered":                     {"ext4", []string{"-Fq"}, false},
		"long":                          {"ext4", []string{"--help"}, false},
		"end of options":                {"ext4", []string{"--"}, false},
		"single dash":                   {"ext4", []string{"-"}, false},
		"empty element":                 {"ext4", []string{""}, false},
		"value missing":                 {"ext4", []string{"-L"}, false},
		"value empty":                   {"ext4", []string{"-L", ""}, false},
		"value that looks like a flag":  {"ext4", []string{"-L", "-n"}, false},
		"value that is a path":          {"ext4", []string{"-T", "/etc/x"}, false},
		"directory only written down":   {"ext4", []string{"-M", "/mnt"}, true},
		"xfs log device":                {"xfs", []string{"-l", "logdev=sdb"}, false},
		"xfs realtime device":           {"xfs", []string{"-r", "rtdev=sdb"}, false},
		"xfs data file":                 {"xfs", []string{"-d", "size=1g,name=x"}, false},
		"xfs data file flag":            {"xfs", []string{"-d", "file"}, false},
		"xfs protofile":                 {"xfs", []string{"-p", "proto"}, false},
		"xfs configuration":             {"xfs", []string{"-c", "options=x"}, false},
		"journal device, upper case":    {"ext4", []string{"-O", "JOURNAL_DEV"}, false},
		"journal device, signed":        {"ext4", []string{"-O", "+journal_dev"}, false},
		"journal device, after a space": {"ext4", []string{"-O", "quota journal_dev"}, false},
		"journal device, by number":     {"ext4", []string{"-O", "FEATURE_I3"}, false},
		"volume nobody can write":       {"ext4", []string{"-O", "read-only"}, false},
		"sparse file":                   {"ext4", []string{"-E", "android_sparse"}, false},
		"old content as inode tables":   {"ext4", []string{"-E", "assume_storage_prezeroed=1"}, false},
		"panic of the node":             {"ext4", []string{"-e", "panic"}, false},
		"errors make it read-only":      {"ext4", []string{"-eremount-ro"}, true},
		"identity":                      {"ext4", []string{"-U", "0d1f9c1e-0000-4000-8000-000000000001", "-T", "news,small"}, true},
		"bad identity":                  {"ext4", []string{"-U", "1 2"}, false},
		"label too long":                {"ext4", []string{"-L", "seventeen letters"}, false},
		"xfs label too long":            {"xfs", []string{"-L", "thirteen char"}, false},
		"not a number":                  {"ext4", []string{"-N", "many"}, false},
		"suboption with a space":        {"ext4", []string{"-E", "stride=4 offset=1"}, false},
		"suboption without a key":       {"xfs", []string{"-i", "=4"}, false},
		"suboptions, one empty":         {"xfs", []string{"-i", "size=512,"}, false},
		"xfs data smaller than volume":  {"xfs", []string{"-d", "size=1g"}, false},
		"xfs log device, old name":      {"xfs", []string{"-l", "name=sdb"}, false},
		"xfs dry run":                   {"xfs", []string{"-N"}, false},
		"filesystem type nobody offers": {"btrfs", nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := CheckOptions(tc.fstype, tc.options)
			if (err == nil) != tc.ok {
				t.Fatalf("CheckOptions(%s, %q) = %v, want ok %v", tc.fstype, tc.options, err, tc.ok)
			}
			if err != nil && !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("CheckOptions(%s, %q) = %v, want ErrInvalid", tc.fstype, tc.options, err)
			}
		})
	}
}

// TestCheckOptions_message: what is refused and what is allowed instead.
func TestCheckOptions_message(t *testing.T) {
	tests := map[string]struct {
		fstype  string
		options []string
		want    string
	}{
		"flag":             {"xfs", []string{"-p", "x"}, `mkfs option "-p" is not allowed for xfs; allowed are -K -L -b -d -f -i -l -m -n -q -s`},
		"suboption":        {"ext4", []string{"-J", "device=x"}, `mkfs option "-J device=x" is not allowed for ext4; "device" is none of its suboptions, which are size fast_commit_size location`},
		"number of ext4":   {"xfs", []string{"-m0"}, `mkfs option "-m 0" is not allowed for xfs; "0" is none of its suboptions, which are autofsck bigtime`},
		"suboption's form": {"xfs", []string{"-i", "size=a b"}, `mkfs option "-i size=a b" is not allowed for xfs; its suboption "size=a b" must match ^`},
		"value's form":     {"ext4", []string{"-N", "many"}, `mkfs option "-N many" is not allowed for ext4; its value must match ^[0-9]+`},
		"value missing":    {"ext4", []string{"-L"}, `mkfs option "-L" is not allowed for ext4; it needs a value`},
		"value too long":   {"xfs", []string{"-L", "thirteen char"}, `mkfs option "-L thirteen char" is not allowed for xfs; its value has 13 bytes, at most 12 are allowed`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := CheckOptions(tc.fstype, tc.options)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("CheckOptions(%s, %q) = %v, want %q", tc.fstype, tc.options, err, tc.want)
			}
		})
	}
}

// getopt are the option strings in the programs mke2fs 1.47 and mkfs.xfs 6.1 of Debian 12
// (strings(1) shows them): a colon follows a flag that takes a value.
var getopt = map[string]string{
	"ext4": "b:cd:e:g:i:jl:m:no:qr:s:t:vC:DE:FG:I:J:KL:M:N:O:R:ST:U:Vz:",
	"xfs":  "b:c:d:i:l:L:m:n:KNp:qr:s:CfV",
}

// asMkfs reads options as getopt(3) does: flag and value of each, or ok=false where a
// positional argument, an unknown flag or a missing value stands.
func asMkfs(fstype string, options []string) (pairs [][2]string, ok bool) {
	for i := 0; i < len(options); i++ {
		o := options[i]
		if len(o) < 2 || o[0] != '-' || o == "--" {
			return nil, false
		}
		for at := 1; at < len(o); at++ {
			known := strings.IndexByte(getopt[fstype], o[at])
			if known < 0 || o[at] == ':' {
				return nil, false
			}
			if !strings.HasPrefix(getopt[fstype][known+1:], ":") {
				pairs = append(pairs, [2]string{o[at : at+1], ""})
				continue
			}
			value := o[at+1:]
			if value == "" {
				if i++; i == len(options) {
					return nil, false
				}
				value = options[i]
			}
			pairs = append(pairs, [2]string{o[at : at+1], value})
			break
		}
	}
	return pairs, true
}

// reaches are the words by which mkfs would open, read or write something else than the
// volume from its start.
var reaches = regexp.MustCompile(`(?i)(^|[,\s+^])(device|offset|journal_dev|feature_.*|android_sparse|logdev|rtdev|name|file|options)(=|,|\s|$)`)

// FuzzCheckOptions: what passes has, to mkfs, only flags of the list, no positional
// argument, and no value that names a device, file or offset.
func FuzzCheckOptions(f *testing.F) {
	f.Add(true, "-E", "nodiscard,offset=1", "")
	f.Add(true, "-M", "/mnt", "-q")
	f.Add(true, "-O", "quota journal_dev", "-Fq")
	f.Add(false, "-l", "internal=1,logdev=/dev/sdb", "-f")
	f.Add(false, "-dname=/dev/sdb", "--", "/dev/sda")
	f.Fuzz(func(t *testing.T, ext4 bool, a, b, c string) {
		fstype, refused := "ext4", "dlznSVtcRsK"
		if !ext4 {
			fstype, refused = "xfs", "pcNrVC"
		}
		options := []string{a, b, c}
		if CheckOptions(fstype, options) != nil {
			return
		}
		pairs, ok := asMkfs(fstype, options)
		if !ok {
			t.Fatalf("CheckOptions(%s, %q) passed, mkfs would see something else than flags and values", fstype, options)
		}
		for _, p := range pairs {
			free := p[0] == "L" || p[0] == "M" && ext4
			if strings.Contains(refused, p[0]) || strings.ContainsAny(p[1], "\x00\n") || !free && (strings.Contains(p[1], "/") || reaches.MatchString(p[1])) {
				t.Errorf("CheckOptions(%s, %q) let -%s %q pass", fstype, options, p[0], p[1])
			}
		}
	})
}
