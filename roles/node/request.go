package node

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/roles/node/staging"
	"github.com/pillar-csi/pillar/storage/filesystem"
	"github.com/pillar-csi/pillar/storage/mount"
)

// stageRequest is a parsed NodeStageVolume: the record it would leave, and what only the
// first stage needs.
type stageRequest struct {
	staging.Record
	MkfsOptions []string
}

// parseStage checks everything that can be checked without looking at the machine.
func parseStage(req *csi.NodeStageVolumeRequest, pageSize int64) (stageRequest, error) {
	var want stageRequest
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return want, err
	}
	if err := path("staging_target_path", req.GetStagingTargetPath()); err != nil {
		return want, err
	}
	if err := issued(req.GetVolumeId()); err != nil {
		return want, err
	}
	access, readOnly, err := capability(req.GetVolumeCapability())
	if err != nil {
		return want, err
	}
	source, err := attach.Parse(req.GetVolumeContext(), req.GetPublishContext(), pageSize)
	if err != nil {
		return want, err
	}
	want.Record = staging.Record{
		VolumeID: req.GetVolumeId(), Source: source, Access: access, ReadOnly: readOnly,
		StagingPath: filepath.Clean(req.GetStagingTargetPath()),
	}
	if err := want.preserve(req.GetVolumeContext()); err != nil || access == staging.Block {
		return want, err // a class's filesystem settings mean nothing to Block (B-359)
	}
	return want, want.filesystem(req)
}

func (r *stageRequest) preserve(context map[string]string) error {
	const key = attach.Prefix + "import-policy"
	policy, ok := context[key]
	if ok && policy != "PreserveOriginal" {
		return csiserve.Invalid(key, fmt.Sprintf("unknown policy %q", policy))
	}
	r.Preserve = ok
	return nil
}

// filesystem reads type, mkfs and mount options. The context's type wins over the
// capability's, which Kubernetes fills from the class (block.md B-355).
func (r *stageRequest) filesystem(req *csi.NodeStageVolumeRequest) error {
	context, volume := req.GetVolumeContext(), req.GetVolumeCapability().GetMount()
	r.FSType = "ext4"
	if t := volume.GetFsType(); t != "" {
		r.FSType = t
	}
	if t, ok := context[attach.Prefix+"fs-type"]; ok {
		r.FSType = t
	}
	var err error
	if r.MkfsOptions, err = list(context, "mkfs-options", nil); err != nil {
		return err
	}
	if err := filesystem.CheckOptions(r.FSType, r.MkfsOptions); err != nil {
		return err
	}
	options, err := list(context, "mount-options", volume.GetMountFlags())
	if err != nil {
		return err
	}
	if err := filesystem.CheckMountOptions(options); err != nil {
		return err
	}
	if flags, _ := mount.Options(options); flags&unix.MS_RDONLY != 0 {
		r.ReadOnly = true
	}
	multi := req.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	r.MountOptions = append(slices.Clone(options), ownOptions(r.FSType, r.ReadOnly, multi)...)
	return nil
}

// ownOptions are the mount options a volume needs whatever its user says. They come last
// and win. Two nodes must not replay one journal (block.md U-34); an adopted XFS may be a
// copy with the UUID of one that is mounted already (hazards.md H-8).
func ownOptions(fstype string, readOnly, multi bool) []string {
	var own []string
	if fstype == "xfs" {
		own = append(own, "nouuid")
	}
	if readOnly {
		own = append(own, "ro")
	}
	switch {
	case multi && fstype == "xfs":
		own = append(own, "norecovery")
	case multi:
		own = append(own, "noload")
	}
	return own
}

// list reads a JSON string array of the volume context, or answers the default.
func list(context map[string]string, key string, absent []string) ([]string, error) {
	text, ok := context[attach.Prefix+key]
	if !ok {
		return absent, nil
	}
	var out []string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, csiserve.Invalid(attach.Prefix+key, fmt.Sprintf("%q is not a JSON array of strings", text))
	}
	return out, nil
}

// capability answers how the volume is wanted. A block volume is never written by two
// nodes (api.md 9.2).
func capability(c *csi.VolumeCapability) (access staging.Access, readOnly bool, err error) {
	switch {
	case c.GetMount() != nil:
		access = staging.Filesystem
	case c.GetBlock() != nil:
		access = staging.Block
	default:
		return "", false, csiserve.Invalid("volume_capability", "no access type")
	}
	switch mode := c.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		return access, true, nil
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return access, false, nil
	default:
		return "", false, csiserve.Invalid("volume_capability", fmt.Sprintf("access mode %s is not offered", mode))
	}
}

// publishRequest is a parsed NodePublishVolume.
type publishRequest struct {
	volumeID, staging, target string
	access                    staging.Access
	readOnly                  bool
}

func parsePublish(req *csi.NodePublishVolumeRequest) (publishRequest, error) {
	want := publishRequest{
		volumeID: req.GetVolumeId(), staging: filepath.Clean(req.GetStagingTargetPath()),
		target: filepath.Clean(req.GetTargetPath()), readOnly: req.GetReadonly(),
	}
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return want, err
	}
	if err := path("staging_target_path", req.GetStagingTargetPath()); err != nil {
		return want, err
	}
	if err := path("target_path", req.GetTargetPath()); err != nil {
		return want, err
	}
	var err error
	want.access, _, err = capability(req.GetVolumeCapability())
	return want, err
}

// expandRequest is a parsed NodeExpandVolume.
type expandRequest struct {
	volumeID, path string
	atLeast        int64 // bytes; 0: whatever the device has
}

func parseExpand(req *csi.NodeExpandVolumeRequest) (expandRequest, error) {
	size := req.GetCapacityRange()
	want := expandRequest{volumeID: req.GetVolumeId(), path: filepath.Clean(req.GetVolumePath()), atLeast: size.GetRequiredBytes()}
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return want, err
	}
	if err := required("volume_path", req.GetVolumePath()); err != nil {
		return want, err
	}
	limit := size.GetLimitBytes()
	if want.atLeast < 0 || limit < 0 || limit > 0 && limit < want.atLeast {
		return want, csiserve.Invalid("capacity_range", fmt.Sprintf("from %d to %d bytes", want.atLeast, limit))
	}
	return want, issued(want.volumeID)
}

// issued is NotFound for an ID this driver has never given to a volume: agent, protocol,
// backend, agent volume ID (block.md B-15).
func issued(volumeID string) error {
	if strings.Count(volumeID, "/") < 3 {
		return csiserve.As(csiserve.NotFound, fmt.Errorf("volume %q was never issued by this driver", volumeID))
	}
	return nil
}

func required(field, value string) error {
	if value == "" {
		return csiserve.Invalid(field, "is empty")
	}
	return nil
}

// path accepts an absolute path that means itself.
func path(field, value string) error {
	if err := required(field, value); err != nil {
		return err
	}
	if !filepath.IsAbs(value) || filepath.Clean(value) != strings.TrimSuffix(value, "/") {
		return csiserve.Invalid(field, fmt.Sprintf("%q is not a clean absolute path", value))
	}
	return nil
}
