package settings

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/lvm"
)

// The selectors name an existing volume instead of a new one; at most one is given.
const (
	ImportZvol       = v1alpha1.KeyPrefix + "import-zvol"
	ImportLV         = v1alpha1.KeyPrefix + "import-lv"
	ImportDirectory  = v1alpha1.KeyPrefix + "import-directory"
	ImportZFSDataset = v1alpha1.KeyPrefix + "import-zfs-dataset"

	importLVPolicy = v1alpha1.KeyPrefix + "import-lv-policy"
)

var selectors = []string{ImportZvol, ImportLV, ImportDirectory, ImportZFSDataset}

// The values of import-lv-policy.
const (
	policyPreserve = "PreserveOriginal"
	policyManaged  = "Managed"
)

// Import is the existing volume a claim asks for.
type Import struct {
	Selector string              // the annotation
	Source   string              // its value
	LV       *v1alpha1.LVMSource // what import-lv pins, policy included
}

// parseImport reads the selector, if there is one.
func parseImport(annotations map[string]string) (*Import, Problems) {
	var given []string
	for _, key := range selectors {
		if _, ok := annotations[key]; ok {
			given = append(given, key)
		}
	}
	policy, hasPolicy := annotations[importLVPolicy]
	var bad Problems
	if len(given) > 1 {
		bad = append(bad, &FieldError{Key: strings.Join(given, ", "), Why: "exclude each other", Fix: "keep one of them"})
	}
	if hasPolicy && !slices.Contains(given, ImportLV) {
		bad = append(bad, &FieldError{Key: importLVPolicy, Value: policy, Why: "needs " + ImportLV, Fix: "add that annotation or remove this one"})
	}
	if hasPolicy && policy != policyManaged && policy != policyPreserve {
		bad = append(bad, &FieldError{Key: importLVPolicy, Value: fmt.Sprintf("%q", policy), Why: "is not supported", Fix: "use one of " + policyPreserve + ", " + policyManaged})
	}
	var first *Import
	for _, key := range given {
		i, more := parseSource(key, annotations[key])
		if bad = append(bad, more...); first == nil {
			first = i
		}
	}
	if first != nil && first.LV != nil {
		first.LV.PreserveOriginal = policy != policyManaged
	}
	return first, bad
}

// parseSource holds the value of one selector to its grammar.
func parseSource(selector, source string) (*Import, Problems) {
	i := &Import{Selector: selector, Source: source}
	var bad Problems
	refuse := func(fix string) {
		bad = append(bad, &FieldError{Key: i.Selector, Value: fmt.Sprintf("%q", i.Source), Why: "does not name an existing volume", Fix: fix})
	}
	switch i.Selector {
	case ImportZvol, ImportZFSDataset:
		if !legalDataset(i.Source) {
			refuse("write <pool>[/<parentDataset>]/<name> with letters, digits and - _ . :")
		}
	case ImportDirectory:
		if !legalDirectory(i.Source) {
			refuse("write an absolute path without //, ., .. and trailing /")
		}
	case ImportLV:
		if i.LV = parseLV(i.Source); i.LV == nil {
			refuse("write <vg>/<lv>:<vg_uuid>:<lv_uuid> as vgs and lvs print them")
		}
	}
	return i, bad
}

// nameMax is the longest dataset name in bytes, the pool included: ZFS_MAX_DATASET_NAME_LEN
// of zfs(8) minus the NUL.
const nameMax = 255

var zfsComponent = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

// legalDataset holds a full dataset name to B-532.
func legalDataset(name string) bool {
	components := strings.Split(name, "/")
	return len(name) <= nameMax && len(components) > 1 && !slices.ContainsFunc(components, func(c string) bool {
		return !zfsComponent.MatchString(c) || c == "." || c == ".."
	})
}

// legalDirectory holds a path to F-145. PATH_MAX counts the NUL.
func legalDirectory(p string) bool {
	return path.IsAbs(p) && p == path.Clean(p) && p != "/" && len(p) <= 4095 && !strings.ContainsFunc(p, control)
}

var lvmUUID = regexp.MustCompile(`^[A-Za-z0-9]{6}(-[A-Za-z0-9]{4}){5}-[A-Za-z0-9]{6}$`)

// parseLV answers nil for what is not <vg>/<lv>:<vg_uuid>:<lv_uuid> (B-545).
func parseLV(s string) *v1alpha1.LVMSource {
	fields := strings.Split(s, ":")
	if len(fields) != 3 || !lvmUUID.MatchString(fields[1]) || !lvmUUID.MatchString(fields[2]) {
		return nil
	}
	vg, lv, ok := strings.Cut(fields[0], "/")
	if !ok || lvm.CheckGroup(vg) != nil || lvm.CheckName(lv) != nil {
		return nil
	}
	return &v1alpha1.LVMSource{
		VolumeGroup: vg, LogicalVolume: lv,
		VolumeGroupUUID: v1alpha1.LVMUUID(fields[1]), LogicalVolumeUUID: v1alpha1.LVMUUID(fields[2]),
	}
}

// importRefused tells whether the annotations of an import are refused already.
func importRefused(bad Problems) bool {
	return slices.ContainsFunc(bad, func(e *FieldError) bool { return strings.HasPrefix(e.Key, v1alpha1.KeyPrefix+"import-") })
}

// checkImport holds the selector against identity and store.
func (l Layers) checkImport() Problems {
	i := l.Import
	if i == nil && l.files() {
		return Problems{{
			Key: "annotations", Why: "select no existing directory or dataset, and " + l.driver() + " creates nothing",
			Fix: "add " + ImportDirectory + " or " + ImportZFSDataset,
		}}
	}
	if i == nil {
		return nil
	}
	at := place{key: i.Selector}
	wants := map[string]storage.BackendType{
		ImportZvol: storage.ZFSZvol, ImportLV: storage.LVMLV, ImportDirectory: storage.Directory, ImportZFSDataset: storage.ZFSDataset,
	}[i.Selector]
	if adopts := wants == storage.Directory || wants == storage.ZFSDataset; adopts != l.files() {
		return Problems{at.problem(i.Source, "does not apply to driver "+l.driver(), "use a class of the other driver")}
	}
	if got := BackendType(l.Store.Backend); got != wants {
		return Problems{at.problem(i.Source, fmt.Sprintf("needs a %s store, PillarStore %q is %s", wants, l.StoreName, got), "use a class of such a store")}
	}
	if why, fix := i.outside(l.Store.Backend); why != "" {
		return Problems{at.problem(i.Source, why, fix)}
	}
	return nil
}

// outside says how the source misses the store, and the way in.
func (i *Import) outside(b v1alpha1.Backend) (why, fix string) {
	switch i.Selector {
	case ImportZvol, ImportZFSDataset:
		if parent := path.Join(b.ZFS.Pool, b.ZFS.ParentDataset); path.Dir(i.Source) != parent {
			return "is not directly below " + parent + " of the PillarStore", "name " + parent + "/<name>"
		}
	case ImportLV:
		if i.LV.VolumeGroup != b.LVM.VolumeGroup {
			return "is not in volume group " + b.LVM.VolumeGroup + " of the PillarStore", "name an LV of it"
		}
	case ImportDirectory:
		root := path.Clean(b.Directory.HostRoot)
		if !strings.HasPrefix(i.Source, strings.TrimSuffix(root, "/")+"/") {
			return "is not below " + root + " of the PillarStore", "name a directory in it"
		}
	}
	return "", ""
}
