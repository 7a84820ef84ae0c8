package filesystem

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/storage"
)

// flag is one mkfs flag users may set.
type flag struct {
	value bool // takes a value
	// keys, when set, is what a key of the comma-separated value may be.
	keys []string
	// text is free: a label, or the name of a directory that is only written down.
	text bool
	// deny refuses a whole feature or key although the flag itself is allowed.
	deny []string
}

// allowed is the allow-list of api.md 10.1: nothing on it opens another file or device,
// does not create, or moves the place of the filesystem. The suboption lists are ours
// (api.md 10.1 leaves them open); mke2fs(8) and mkfs.xfs(8) have the meanings.
var allowed = map[string]map[string]flag{
	"ext4": {
		"-b": {value: true}, "-C": {value: true}, "-D": {},
		"-e": {value: true}, "-F": {}, "-g": {value: true}, "-G": {value: true},
		"-E": {value: true, keys: []string{
			"assume_storage_prezeroed", "desc_size", "discard", "encoding", "encoding_flags", "hash_seed",
			"lazy_itable_init", "lazy_journal_init", "mmp_update_interval", "no_copy_xattrs", "nodiscard",
			"num_backup_sb", "orphan_file_size", "packed_meta_blocks", "quotatype", "resize", "root_owner",
			"root_perms", "stride", "stripe-width", "stripe_width", "test_fs",
		}},
		"-i": {value: true}, "-I": {value: true}, "-j": {},
		"-J": {value: true, keys: []string{"size", "fast_commit_size", "location"}},
		"-L": {value: true, text: true}, "-m": {value: true}, "-M": {value: true, text: true}, "-N": {value: true},
		"-o": {value: true}, "-O": {value: true, deny: []string{"journal_dev"}},
		"-q": {}, "-r": {value: true}, "-T": {value: true}, "-U": {value: true}, "-v": {},
	},
	"xfs": {
		"-b": {value: true, keys: []string{"size"}},
		"-d": {value: true, keys: []string{
			"agcount", "agsize", "sunit", "swidth", "su", "sw", "noalign", "rtinherit", "projinherit",
			"extszinherit", "cowextsize", "daxinherit", "concurrency",
		}},
		"-i": {value: true, keys: []string{
			"size", "perblock", "maxpct", "align", "attr", "projid32bit", "sparse", "nrext64", "exchange",
		}},
		"-l": {value: true, keys: []string{
			"internal", "size", "version", "sunit", "su", "lazy-count", "sectsize", "agnum", "concurrency",
		}},
		"-m": {value: true, keys: []string{
			"bigtime", "crc", "finobt", "inobtcount", "uuid", "rmapbt", "reflink", "metadir", "autofsck",
		}},
		"-n": {value: true, keys: []string{"size", "version", "ftype", "parent"}},
		"-s": {value: true, keys: []string{"size"}},
		"-f": {}, "-K": {}, "-L": {value: true, text: true}, "-q": {},
	},
}

// CheckOptions holds mkfs options against the allow-list of fstype. A flag's value is
// attached to it or the next element. It returns storage.ErrInvalid with the words
// "mkfs option ... is not allowed" and the allowed list.
func CheckOptions(fstype string, options []string) error {
	flags, ok := allowed[fstype]
	if !ok {
		return fmt.Errorf("%w: filesystem type %q is not offered", storage.ErrInvalid, fstype)
	}
	for i := 0; i < len(options); i++ {
		name, value := options[i], ""
		if len(name) > 2 {
			name, value = name[:2], name[2:]
		}
		f, ok := flags[name]
		switch {
		case !ok, !f.value && value != "":
			return refuse(fstype, options[i], "")
		case f.value && value == "":
			if i++; i == len(options) || options[i] == "" {
				return refuse(fstype, name, "without a value ")
			}
			value = options[i]
		}
		if err := f.check(value); err != "" {
			return refuse(fstype, name+" "+value, err)
		}
	}
	return nil
}

// check answers why the value is refused, or "".
func (f flag) check(value string) string {
	if strings.HasPrefix(value, "-") || strings.ContainsAny(value, "\x00\n") || (!f.text && strings.Contains(value, "/")) {
		return "with such a value "
	}
	if f.keys == nil && f.deny == nil {
		return ""
	}
	for _, part := range strings.Split(value, ",") {
		key, _, _ := strings.Cut(part, "=")
		if slices.Contains(f.deny, key) || (f.keys != nil && !slices.Contains(f.keys, key)) {
			return fmt.Sprintf("with %q ", key)
		}
	}
	return ""
}

func refuse(fstype, option, why string) error {
	var names []string
	for name := range allowed[fstype] {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("%w: mkfs option %q %sis not allowed for %s; allowed are %s",
		storage.ErrInvalid, option, why, fstype, strings.Join(names, " "))
}
