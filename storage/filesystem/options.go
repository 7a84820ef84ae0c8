package filesystem

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/storage"
)

// flag is one mkfs flag users may set. One without value takes none.
type flag struct {
	value *regexp.Regexp // the whole value, or each element of it if there are keys
	max   int            // bytes; 0 is unlimited
	keys  []string       // of a comma-separated list of key[=value]
}

// What values may be. None but a label and the directory of -M, which are only written
// down, can hold a slash: nothing else here can be a path.
var (
	number   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?[A-Za-z]?$`)
	word     = regexp.MustCompile(`^[A-Za-z0-9_]+$`)
	words    = regexp.MustCompile(`^[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*$`)
	onError  = regexp.MustCompile(`^(continue|remount-ro)$`)
	uuid     = regexp.MustCompile(`^(clear|random|time|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$`)
	text     = regexp.MustCompile(`^[^-\x00-\x1f\x7f][^\x00-\x1f\x7f]*$`)
	feature  = regexp.MustCompile(`^\^?[a-z0-9_]+$`)
	setting  = regexp.MustCompile(`^[a-z0-9_-]+(=[A-Za-z0-9_.:-]*)?$`)
	features = []string{
		"64bit", "bigalloc", "casefold", "dir_index", "dir_nlink", "ea_inode", "encrypt", "ext_attr", "extent",
		"extents", "extra_isize", "fast_commit", "filetype", "flex_bg", "has_journal", "huge_file", "inline_data",
		"large_dir", "large_file", "meta_bg", "metadata_csum", "metadata_csum_seed", "mmp", "none", "orphan_file",
		"project", "quota", "resize_inode", "sparse_super", "sparse_super2", "stable_inodes", "uninit_bg", "verity",
	}
)

// allowed is the allow-list of api.md 10.1: nothing on it opens another file or device,
// keeps mkfs from making the filesystem, or moves its place. mke2fs(8) and mkfs.xfs(8)
// have the meanings; the suboptions are ours to choose (docs/parameters.md). Left out on
// purpose, beyond what api.md names:
//
//	-E assume_storage_prezeroed  old content of the pool would become inode tables
//	-E android_sparse            writes a sparse file instead of a device
//	-O read-only, shared_blocks  a volume nobody can write
//	-O FEATURE_I3, +journal_dev  other names of journal_dev: e2p(3) folds case and signs
//	-e panic                     an author of claims must not stop a node
//	-d size (xfs)                a filesystem is as large as its volume
var allowed = map[string]map[string]flag{
	"ext4": {
		"-b": {value: number}, "-C": {value: number}, "-D": {},
		"-e": {value: onError}, "-F": {}, "-g": {value: number}, "-G": {value: number},
		"-E": {value: setting, keys: []string{
			"desc-size", "desc_size", "discard", "encoding", "encoding_flags", "hash_seed", "lazy_itable_init",
			"lazy_journal_init", "mmp_update_interval", "nodiscard", "num_backup_sb", "orphan_file_size",
			"packed_meta_blocks", "quotatype", "resize", "root_owner", "stride", "stripe-width", "stripe_width",
		}},
		"-i": {value: number}, "-I": {value: number}, "-j": {},
		"-J": {value: setting, keys: []string{"size", "fast_commit_size", "location"}},
		"-L": {value: text, max: 16}, "-m": {value: number}, "-M": {value: text, max: 64}, "-N": {value: number},
		"-o": {value: word}, "-O": {value: feature, keys: features},
		"-q": {}, "-r": {value: number}, "-T": {value: words}, "-U": {value: uuid}, "-v": {},
	},
	"xfs": {
		"-b": {value: setting, keys: []string{"size"}},
		"-d": {value: setting, keys: []string{
			"agcount", "agsize", "concurrency", "cowextsize", "daxinherit", "extszinherit", "noalign", "projinherit",
			"su", "sunit", "sw", "swidth",
		}},
		"-i": {value: setting, keys: []string{
			"align", "attr", "exchange", "maxpct", "nrext64", "perblock", "projid32bit", "size", "sparse",
		}},
		"-l": {value: setting, keys: []string{
			"agnum", "concurrency", "internal", "lazy-count", "size", "su", "sunit", "version",
		}},
		"-m": {value: setting, keys: []string{
			"autofsck", "bigtime", "crc", "finobt", "inobtcount", "metadir", "reflink", "rmapbt", "uuid",
		}},
		"-n": {value: setting, keys: []string{"ftype", "parent", "size", "version"}},
		"-s": {value: setting, keys: []string{"size"}},
		"-f": {}, "-K": {}, "-L": {value: text, max: 12}, "-q": {},
	},
}

// CheckOptions holds mkfs options against the allow-list of fstype. A flag's value is
// attached to it or the next element. It returns storage.ErrInvalid with the words
// "mkfs option ... is not allowed" and what is allowed instead: flags, suboptions of the
// flag, or the form of its value.
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
		case !ok, f.value == nil && value != "":
			return refuse(fstype, options[i], "allowed are "+strings.Join(slices.Sorted(maps.Keys(flags)), " "))
		case f.value == nil:
			continue
		case value == "":
			if i++; i == len(options) {
				return refuse(fstype, name, "it needs a value")
			}
			value = options[i]
		}
		if why := f.check(value); why != "" {
			return refuse(fstype, name+" "+value, why)
		}
	}
	return nil
}

// check answers why the value is refused, or "".
func (f flag) check(value string) string {
	if f.max > 0 && len(value) > f.max {
		return fmt.Sprintf("its value has %d bytes, at most %d are allowed", len(value), f.max)
	}
	if f.keys == nil {
		if !f.value.MatchString(value) {
			return fmt.Sprintf("its value must match %s", f.value)
		}
		return ""
	}
	for part := range strings.SplitSeq(value, ",") {
		key, _, _ := strings.Cut(strings.TrimPrefix(part, "^"), "=")
		switch {
		case !slices.Contains(f.keys, key):
			return fmt.Sprintf("%q is none of its suboptions, which are %s", key, strings.Join(f.keys, " "))
		case !f.value.MatchString(part):
			return fmt.Sprintf("its suboption %q must match %s", part, f.value)
		}
	}
	return ""
}

func refuse(fstype, option, why string) error {
	return fmt.Errorf("%w: mkfs option %q is not allowed for %s; %s", storage.ErrInvalid, option, fstype, why)
}
