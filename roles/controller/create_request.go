package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// Keys the external provisioner adds (--extra-create-metadata) or consumes.
const (
	fstypeParameter       = "csi.storage.k8s.io/fstype"
	pvcNameParameter      = "csi.storage.k8s.io/pvc/name"
	pvcNamespaceParameter = "csi.storage.k8s.io/pvc/namespace"
)

// defaultSize is made when a request names no size (block.md U-6).
const defaultSize = 1 << 30

// createRequest is a CreateVolume request that passed every check which needs no API
// server.
type createRequest struct {
	name            string
	required, limit int64 // bytes; 0 is unset
	block           bool  // every capability is raw block
	fsType          string

	class                 string // PillarStorageClass of a generated StorageClass, or
	store, protocol       string // names of a hand-written one
	documents             settings.Documents
	localAttach           bool
	pvcName, pvcNamespace string
}

// parseCreate checks the request (block.md B-65 to B-69); every error is InvalidArgument.
func parseCreate(req *csi.CreateVolumeRequest) (createRequest, error) {
	w := createRequest{
		name:     req.GetName(),
		required: req.GetCapacityRange().GetRequiredBytes(),
		limit:    req.GetCapacityRange().GetLimitBytes(),
		block:    true,
	}
	switch {
	case w.name == "":
		return w, csiserve.Invalid("name", "is empty")
	case strings.Contains(w.name, "/"):
		return w, csiserve.Invalid("name", fmt.Sprintf("%q contains a slash; choose a name without", w.name))
	case !objectName(w.name):
		return w, csiserve.Invalid("name", fmt.Sprintf("%q is no name of a Kubernetes object; use lower-case letters, digits, dash and dot", w.name))
	case req.GetVolumeContentSource() != nil:
		return w, csiserve.Invalid("volume_content_source", "volume_content_source is not supported; create an empty volume")
	}
	if err := checkCapabilities("volume_capabilities", req.GetVolumeCapabilities()); err != nil {
		return w, err
	}
	for _, c := range req.GetVolumeCapabilities() {
		if c.GetMount() != nil {
			w.block = false
			w.fsType = c.GetMount().GetFsType()
		}
	}
	if err := w.checkSize(); err != nil {
		return w, err
	}
	return w, w.parameters(req.GetParameters())
}

// objectName tells whether a record could have the name: it is that of its volume.
func objectName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

func (w *createRequest) checkSize() error {
	switch {
	case w.required < 0:
		return csiserve.Invalid("capacity_range.required_bytes", fmt.Sprintf("%d is negative", w.required))
	case w.limit < 0:
		return csiserve.Invalid("capacity_range.limit_bytes", fmt.Sprintf("%d is negative", w.limit))
	case w.limit > 0 && w.limit < w.required:
		return csiserve.Invalid("capacity_range.limit_bytes", fmt.Sprintf("%d is less than required_bytes %d", w.limit, w.required))
	}
	return nil
}

// size is what the backend is asked for.
func (w *createRequest) size() int64 {
	switch {
	case w.required > 0:
		return w.required
	case w.limit > 0:
		return min(w.limit, defaultSize)
	}
	return defaultSize
}

// parameters reads the StorageClass parameters (api.md 5). Those of other prefixes are
// ignored unless known.
func (w *createRequest) parameters(params map[string]string) error {
	into := map[string]*string{
		v1alpha1.StorageClassKey: &w.class,
		v1alpha1.StoreRefKey:     &w.store,
		v1alpha1.ProtocolRefKey:  &w.protocol,
		v1alpha1.BackendKey:      &w.documents.Backend,
		v1alpha1.ProtocolKey:     &w.documents.Protocol,
		v1alpha1.FilesystemKey:   &w.documents.Filesystem,
		pvcNameParameter:         &w.pvcName,
		pvcNamespaceParameter:    &w.pvcNamespace,
	}
	for key, value := range params {
		switch field := into[key]; {
		case field != nil:
			*field = value
		case key == v1alpha1.LocalAttachKey:
			if value != "true" && value != "false" {
				return csiserve.Invalid(key, fmt.Sprintf(`%q is neither "true" nor "false"`, value))
			}
			w.localAttach = value == "true"
		case key == fstypeParameter && w.fsType == "":
			w.fsType = value
		case strings.HasPrefix(key, v1alpha1.KeyPrefix):
			return csiserve.Invalid("parameters", fmt.Sprintf("unsupported StorageClass parameter %q (value %q); remove it", key, value))
		}
	}
	return w.checkReferences(params)
}

// checkReferences insists on either a PillarStorageClass, or a store and a protocol.
func (w *createRequest) checkReferences(params map[string]string) error {
	if w.class == "" {
		for key, value := range map[string]string{v1alpha1.StoreRefKey: w.store, v1alpha1.ProtocolRefKey: w.protocol} {
			if value == "" {
				return csiserve.Invalid("parameters", fmt.Sprintf("%s is missing; name a PillarStore and a PillarProtocol, or use %s", key, v1alpha1.StorageClassKey))
			}
		}
		return nil
	}
	mixed := []string{
		v1alpha1.StoreRefKey, v1alpha1.ProtocolRefKey, v1alpha1.LocalAttachKey,
		v1alpha1.BackendKey, v1alpha1.ProtocolKey, v1alpha1.FilesystemKey,
	}
	i := slices.IndexFunc(mixed, func(key string) bool { _, ok := params[key]; return ok })
	if i >= 0 {
		return csiserve.Invalid("parameters", fmt.Sprintf("%s cannot stand beside %s; remove one of them", mixed[i], v1alpha1.StorageClassKey))
	}
	return nil
}

// importKeys select an existing volume instead of a new one.
var importKeys = []string{"import-zvol", "import-lv", "import-lv-policy", "import-directory", "import-zfs-dataset"}

// claimDocuments reads a claim's annotations (block.md B-70).
func claimDocuments(annotations map[string]string) (settings.Documents, error) {
	var docs settings.Documents
	into := map[string]*string{
		v1alpha1.BackendKey:    &docs.Backend,
		v1alpha1.ProtocolKey:   &docs.Protocol,
		v1alpha1.FilesystemKey: &docs.Filesystem,
	}
	for key, value := range annotations {
		name, ours := strings.CutPrefix(key, v1alpha1.KeyPrefix)
		if !ours {
			continue
		}
		if field := into[key]; field != nil {
			*field = value
			continue
		}
		if slices.Contains(importKeys, name) {
			return docs, csiserve.Invalid(key, fmt.Sprintf("importing %q is not supported yet; remove the annotation for a new volume", value))
		}
		return docs, csiserve.Invalid("annotations", fmt.Sprintf("unsupported PVC annotation %q (value %q); remove it", key, value))
	}
	return docs, nil
}
