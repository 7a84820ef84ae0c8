package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	strict "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/zfs"
)

// file is the --config file (api.md 12): one entry per pool.
type file struct {
	Backends []entry `json:"backends"`
}

// entry has exactly one member.
type entry struct {
	ZFS       *zfsEntry       `json:"zfs"`
	LVM       *lvmEntry       `json:"lvm"`
	Directory *directoryEntry `json:"directory"`
}

type zfsEntry struct {
	Pool          string `json:"pool"`
	VolumeType    string `json:"volumeType"` // zvol (default), dataset
	ParentDataset string `json:"parentDataset"`
}

type lvmEntry struct {
	VolumeGroup      string `json:"volumeGroup"`
	ThinPool         string `json:"thinPool"`
	ProvisioningMode string `json:"provisioningMode"` // linear (default), thin; for requests naming none
}

type directoryEntry struct {
	LogicalPool string `json:"logicalPool"`
	HostRoot    string `json:"hostRoot"`
}

func readFile(path string) (file, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return file{}, fmt.Errorf("read --config: %w", err)
	}
	f, err := parseFile(data)
	if err != nil {
		return file{}, fmt.Errorf("config %s: %w", path, err)
	}
	return f, nil
}

// parseFile decodes strictly: every key it does not know is named with its path. The
// message of every error says which value to change.
func parseFile(data []byte) (file, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return file{}, err
	}
	var f file
	unknown, err := strict.UnmarshalStrict(asJSON, &f)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return file{}, err
	}
	if len(f.Backends) == 0 {
		return file{}, errors.New("backends: at least one backend is required")
	}
	seen := map[string]string{}
	for i, e := range f.Backends {
		path := fmt.Sprintf("backends[%d]", i)
		if err := e.check(path); err != nil {
			return file{}, err
		}
		if err := e.claim(path, seen); err != nil {
			return file{}, err
		}
	}
	return f, f.offered()
}

// check looks at one entry alone and fills in its defaults.
func (e *entry) check(path string) error {
	members := 0
	for _, set := range []bool{e.ZFS != nil, e.LVM != nil, e.Directory != nil} {
		if set {
			members++
		}
	}
	switch {
	case members != 1:
		return fmt.Errorf("%s: %d members, want exactly one of zfs, lvm, directory", path, members)
	case e.ZFS != nil:
		return errors.Join(
			datasetName(path+".zfs", e.ZFS),
			oneOf(path+".zfs.volumeType", &e.ZFS.VolumeType, "zvol", "dataset"))
	case e.LVM != nil:
		return errors.Join(
			groupName(path+".lvm.volumeGroup", e.LVM.VolumeGroup),
			oneOf(path+".lvm.provisioningMode", &e.LVM.ProvisioningMode, "linear", "thin"),
			thinNeedsPool(path+".lvm", e.LVM))
	default:
		if e.Directory.HostRoot == "" {
			return fmt.Errorf("%s.directory.hostRoot: required, set it to an existing directory", path)
		}
		return poolName(path+".directory.logicalPool", e.Directory.LogicalPool)
	}
}

func poolName(path, value string) error {
	if value == "" || strings.Contains(value, "/") {
		return fmt.Errorf("%s: %q is no pool name, set it to the name the host's tools show", path, value)
	}
	return nil
}

func datasetName(path string, e *zfsEntry) error {
	if err := e.config().Check(); err != nil {
		return fmt.Errorf("%s: %w, set pool and parentDataset to names zfs list shows", path, err)
	}
	return nil
}

func (e *zfsEntry) config() zfs.Config {
	return zfs.Config{Pool: e.Pool, ParentDataset: e.ParentDataset}
}

func groupName(path, value string) error {
	if err := lvm.CheckGroup(value); err != nil {
		return fmt.Errorf("%s: %w, set it to a name vgs(8) shows", path, err)
	}
	return nil
}

// oneOf sets an empty value to the first of the choices.
func oneOf(path string, value *string, choices ...string) error {
	if *value == "" {
		*value = choices[0]
	}
	for _, c := range choices {
		if *value == c {
			return nil
		}
	}
	return fmt.Errorf("%s: %q, want one of %s", path, *value, strings.Join(choices, ", "))
}

func thinNeedsPool(path string, l *lvmEntry) error {
	if l.ProvisioningMode == "thin" && l.ThinPool == "" {
		return fmt.Errorf("%s.thinPool: required by provisioningMode thin, set it or use linear", path)
	}
	return nil
}

// claim notes what an entry serves; two entries may not serve the same. A VG claims both
// volume types of a ZFS pool of its name, because agent volume IDs could not tell them apart.
func (e *entry) claim(path string, seen map[string]string) error {
	var keys []string
	switch {
	case e.ZFS != nil:
		keys = []string{e.ZFS.Pool + " " + e.ZFS.VolumeType}
	case e.LVM != nil:
		keys = []string{e.LVM.VolumeGroup + " zvol", e.LVM.VolumeGroup + " dataset"}
	default:
		keys = []string{"directory " + e.Directory.LogicalPool}
	}
	for _, k := range keys {
		if first, taken := seen[k]; taken {
			return fmt.Errorf("%s: duplicate pool/VG, already served by %s: remove one", path, first)
		}
		seen[k] = path
	}
	return nil
}

// offered refuses what is legal and not built yet.
func (f file) offered() error {
	for i, e := range f.Backends {
		switch {
		case e.Directory != nil:
			return fmt.Errorf("backends[%d].directory: not offered by this version yet, remove the entry", i)
		case e.ZFS != nil && e.ZFS.VolumeType != "zvol":
			return fmt.Errorf("backends[%d].zfs.volumeType: %q is not offered by this version yet, remove the entry", i, e.ZFS.VolumeType)
		}
	}
	return nil
}
