package filesystem

import (
	"errors"
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

func TestCheckOptions_Message(t *testing.T) {
	err := CheckOptions("ext4", []string{"-J", "device=x"})
	for _, want := range []string{"mkfs option", "is not allowed", "-T"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("message %q lacks %q", err, want)
		}
	}
}

func FuzzCheckOptions(f *testing.F) {
	f.Add("-E", "nodiscard,offset=1")
	f.Add("-M", "/mnt")
	f.Fuzz(func(t *testing.T, a, b string) {
		if err := CheckOptions("ext4", []string{a, b}); err == nil && strings.ContainsAny(a+b, "\x00\n") {
			t.Errorf("CheckOptions(%q, %q) let a line end pass", a, b)
		}
	})
}
