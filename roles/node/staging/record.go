// Package staging keeps the durable record of each staged volume (block.md 5.2):
//
//	DIR/<escaped volume ID>.json   mode 0600, one per volume
//
// A record exists before a stage has its first effect and until an unstage has had its
// last, so that a crash anywhere leaves something to clean up. Whether a volume is mounted
// is never in it: the mount table knows that. A record that cannot be understood is an
// error for its volume; nothing is ever guessed in its place.
package staging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/storage/host/durable"
)

// Access is how the volume is shown to pods.
type Access string

// The two access types.
const (
	Filesystem Access = "Filesystem"
	Block      Access = "Block"
)

// schema is the version of the record's form. Another one is not ours to interpret.
const schema = 1

// Record is what staging a volume needs to be continued, repeated and undone.
type Record struct {
	Schema   int    `json:"schema_version"`
	VolumeID string `json:"volume_id"`
	attach.Source

	Access       Access   `json:"access_type"`
	FSType       string   `json:"fs_type,omitempty"`
	MountOptions []string `json:"mount_options,omitempty"` // as given to mount, in order
	ReadOnly     bool     `json:"read_only,omitempty"`
	Preserve     bool     `json:"preserve,omitempty"` // an adopted volume: never formatted
	StagingPath  string   `json:"staging_path"`

	StagedAt time.Time  `json:"staged_at,omitzero"` // zero: intent, the stage never finished
	LastTrim *time.Time `json:"last_trim,omitempty"`
}

// Compatible reports whether o asks for the volume in the same way.
func (r Record) Compatible(o Record) bool {
	return r.Access == o.Access && r.FSType == o.FSType && r.ReadOnly == o.ReadOnly
}

// Records is the directory of records.
type Records struct {
	dir string
}

// Open makes the directory ready, removing writes a crash left unfinished.
func Open(dir string) (*Records, error) {
	if err := durable.Prepare(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open stage records: %w", err)
	}
	return &Records{dir: dir}, nil
}

// Dir is where the records are.
func (r *Records) Dir() string { return r.dir }

// Read answers a volume's record and whether there is one. A record that is there and
// cannot be read, or is another volume's, is an error.
func (r *Records) Read(volumeID string) (Record, bool, error) {
	path := r.path(volumeID)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("stage record of %s: %w", volumeID, err)
	}
	rec, err := decode(data, volumeID)
	if err != nil {
		return Record{}, false, fmt.Errorf("stage record %s of %s is unusable: %w", path, volumeID, err)
	}
	return rec, true, nil
}

// Write makes rec the volume's record. After an error the old one or the new one is there.
func (r *Records) Write(rec Record) error {
	rec.Schema = schema
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return fmt.Errorf("stage record of %s: %w", rec.VolumeID, err)
	}
	if _, err := decode(data, rec.VolumeID); err != nil {
		return fmt.Errorf("stage record of %s could not be read again: %w", rec.VolumeID, err)
	}
	if err := durable.Write(r.path(rec.VolumeID), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("stage record of %s: %w", rec.VolumeID, err)
	}
	return nil
}

// Remove removes a volume's record. None there is success.
func (r *Records) Remove(volumeID string) error {
	err := durable.Remove(r.path(volumeID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stage record of %s: %w", volumeID, err)
	}
	return nil
}

// Claimant answers a volume that is recorded as staged from s, or "". An unusable record
// could be the one: it is an error.
func (r *Records) Claimant(s attach.Source) (string, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return "", fmt.Errorf("list stage records: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // unstaged meanwhile
		}
		if err != nil {
			return "", fmt.Errorf("list stage records: %w", err)
		}
		var rec Record
		if err := json.Unmarshal(data, &rec); err != nil {
			return "", fmt.Errorf("stage record %s is unusable: %w", e.Name(), err)
		}
		if rec.Protocol == s.Protocol && rec.NVMe != nil && rec.NVMe.SubsysNQN == s.NVMe.SubsysNQN {
			return rec.VolumeID, nil
		}
	}
	return "", nil
}

func (r *Records) path(volumeID string) string {
	return filepath.Join(r.dir, durable.Name(volumeID)+".json")
}

// decode parses a record and holds it against itself.
func decode(data []byte, volumeID string) (Record, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var rec Record
	if err := dec.Decode(&rec); err != nil {
		return Record{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Record{}, errors.New("something follows the record")
	}
	switch {
	case rec.Schema != schema:
		return Record{}, fmt.Errorf("schema version %d, this version knows %d", rec.Schema, schema)
	case rec.VolumeID != volumeID:
		return Record{}, fmt.Errorf("it is the record of volume %q", rec.VolumeID)
	case !filepath.IsAbs(rec.StagingPath):
		return Record{}, fmt.Errorf("staging path %q", rec.StagingPath)
	case rec.Access != Block && (rec.Access != Filesystem || rec.FSType == ""):
		return Record{}, fmt.Errorf("access type %q with filesystem type %q", rec.Access, rec.FSType)
	}
	return rec, rec.Source.Valid()
}
