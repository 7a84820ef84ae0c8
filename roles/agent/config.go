package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
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
	f, err := decode(data)
	if err != nil {
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

func decode(data []byte) (f file, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err == nil {
		err = oneDocument(data) // the rest would be passed over
	}
	if err != nil {
		return f, err
	}
	unknown, err := strict.UnmarshalStrict(asJSON, &f)
	if err != nil {
		err = wrongType(asJSON, err)
	}
	return f, errors.Join(append(unknown, err)...)
}

// oneDocument refuses a second YAML document; empty ones count for nothing.
func oneDocument(data []byte) error {
	documents := 0
	for reader := yamlv3.NewDecoder(bytes.NewReader(data)); ; {
		var content any
		if err := reader.Decode(&content); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if content != nil {
			documents++
		}
	}
	if documents > 1 {
		return fmt.Errorf("%d YAML documents, want one: put all backends into one list", documents)
	}
	return nil
}

// wrongType says in the words of a configuration which value has another type than its key.
func wrongType(asJSON []byte, err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(json.Unmarshal(asJSON, new(file)), &wrong) {
		return err
	}
	want := "a mapping"
	switch wrong.Type.Kind() {
	case reflect.String:
		want = "text, in quotes"
	case reflect.Slice:
		want = "a list"
	}
	return fmt.Errorf("%s: %s, want %s", cmp.Or(wrong.Field, "the file"), wrong.Value, want)
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
			thinPoolName(path+".lvm.thinPool", e.LVM))
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

func thinPoolName(path string, l *lvmEntry) error {
	switch {
	case l.ThinPool == "" && l.ProvisioningMode == "thin":
		return fmt.Errorf("%s: required by provisioningMode thin, set it or use linear", path)
	case l.ThinPool == "":
		return nil
	}
	if err := lvm.CheckName(l.ThinPool); err != nil {
		return fmt.Errorf("%s: %w, set it to a name lvs(8) shows", path, err)
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
