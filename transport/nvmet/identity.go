package nvmet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	strict "sigs.k8s.io/json"

	"github.com/pillar-csi/pillar/storage/host/durable"
)

// Identity is what a host remembers of a volume. A host that reconnects and finds another
// one drops the namespace and kills the filesystem on it, so it never changes while the
// export may be known to a host (block.md B-25 to B-29).
type Identity struct {
	UUID   string `json:"uuid"`   // namespaces/1/device_uuid, with dashes
	NGUID  string `json:"nguid"`  // namespaces/1/device_nguid, with dashes as the kernel shows it
	Serial string `json:"serial"` // attr_serial, 20 characters
}

// derive makes the identity from the subsystem's NQN alone, so that it survives the loss
// of every file. Frozen by testdata/identity.golden: hosts out there know these values.
//
// Each item is SHA-256 over a label of its own, a zero byte and the NQN. The UUID is
// version 8 (custom) of RFC 9562 5.8; no item can be all zero short of a broken hash.
func derive(nqn string) Identity {
	uuid := digest("uuid", nqn)
	uuid[6] = uuid[6]&0x0f | 0x80 // version 8
	uuid[8] = uuid[8]&0x3f | 0x80 // the RFC's variant
	serial := digest("serial", nqn)
	return Identity{
		UUID:   dashed(uuid),
		NGUID:  dashed(digest("nguid", nqn)),
		Serial: hex.EncodeToString(serial[:10]),
	}
}

func digest(label, nqn string) (out [16]byte) {
	sum := sha256.Sum256([]byte("pillar-csi.bhyoo.com/nvmet/" + label + "\x00" + nqn))
	copy(out[:], sum[:])
	return out
}

func dashed(b [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// record is a pinned identity as it lies on disk. Volume proves that the file belongs to
// the volume its name says.
type record struct {
	Version int    `json:"version"`
	Volume  string `json:"volume"`
	Identity
}

// pinned answers the identity pinned for volume, or nil if there is none. A record that
// cannot be understood is an error: the derived identity must not silently replace it.
func (t *Target) pinned(volume string) (*Identity, error) {
	data, err := os.ReadFile(t.recordPath(volume))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pinned identity of %s: %w", volume, err)
	}
	id, err := parseRecord(data, volume)
	if err != nil {
		return nil, fmt.Errorf("pinned identity %s: %w", t.recordPath(volume), err)
	}
	return id, nil
}

func parseRecord(data []byte, volume string) (*Identity, error) {
	var r record
	strange, err := strict.UnmarshalStrict(data, &r) // a key twice: which of them does the host know?
	if err := errors.Join(append(strange, err)...); err != nil {
		return nil, err
	}
	if r.Version != 1 || r.Volume != volume {
		return nil, fmt.Errorf("version %d of volume %q, want version 1 of %q", r.Version, r.Volume, volume)
	}
	if !isUUID(r.UUID) || !isUUID(r.NGUID) || r.Serial == "" || len(r.Serial) > 20 {
		return nil, fmt.Errorf("incomplete identity %+v", r.Identity)
	}
	return &r.Identity, nil
}

// isUUID wants the dashed form; a zero one is none: hosts would tell no volume from another.
func isUUID(s string) bool {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	return err == nil && len(b) == 16 && len(s) == 36 && !bytes.Equal(b, make([]byte, 16))
}

// pin stores an identity found on an enabled namespace before anything else happens to it.
func (t *Target) pin(volume string, id Identity) error {
	data, err := json.Marshal(record{Version: 1, Volume: volume, Identity: id})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.cfg.IdentityDir, 0o700); err != nil {
		return fmt.Errorf("pin identity of %s: %w", volume, err)
	}
	if err := durable.Write(t.recordPath(volume), data, 0o600); err != nil {
		return fmt.Errorf("pin identity of %s: %w", volume, err)
	}
	return nil
}

// unpin drops the record; from here on the derived identity applies.
func (t *Target) unpin(volume string) error {
	path := t.recordPath(volume)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := durable.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unpin identity of %s: %w", volume, err)
	}
	return nil
}

// identity decides which identity the volume's export has: that of an enabled namespace,
// else the pinned one, else the derived one. It pins what it keeps against the derivation.
func (t *Target) identity(volume, nqn string, s *subsystem) (Identity, error) {
	want := derive(nqn)
	pin, err := t.pinned(volume)
	if err != nil {
		return want, err
	}
	if pin != nil {
		want = *pin
	}
	if s == nil || !s.enabled || s.id == want {
		return want, nil
	}
	return s.id, t.pin(volume, s.id)
}
