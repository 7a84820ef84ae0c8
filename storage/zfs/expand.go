package zfs

import (
	"context"
	"fmt"

	"github.com/pillar-csi/pillar/storage"
)

// Expand implements storage.Backend. zfs set would also shrink, without a word.
func (p *Pool) Expand(ctx context.Context, name string, owner storage.Owner, bytes int64) (storage.Volume, error) {
	v, err := p.expand(ctx, name, owner, bytes)
	if err != nil {
		return storage.Volume{}, fmt.Errorf("expand zvol %s: %w", p.cfg.dataset(name), err)
	}
	return v, nil
}

func (p *Pool) expand(ctx context.Context, name string, owner storage.Owner, bytes int64) (storage.Volume, error) {
	if bytes <= 0 {
		return storage.Volume{}, fmt.Errorf("%w: size of %d bytes", storage.ErrInvalid, bytes)
	}
	zvol, err := p.usable(ctx, name, owner)
	if err != nil {
		return storage.Volume{}, err
	}
	size, err := roundUp(bytes, zvol.block)
	switch {
	case err != nil:
		return storage.Volume{}, err
	case size < zvol.size:
		return storage.Volume{}, fmt.Errorf("%w: volsize of %d bytes cannot be decreased to %d", storage.ErrOutOfRange, zvol.size, size)
	case size > zvol.size:
		if zvol, err = p.grow(ctx, name, owner, zvol, size); err != nil {
			return storage.Volume{}, err
		}
	}
	return p.volume(name, zvol), p.reserve(ctx, zvol)
}

// grow sets volsize and reads it back. zfs set grows the reservation with it.
func (p *Pool) grow(ctx context.Context, name string, owner storage.Owner, zvol report, size int64) (report, error) {
	parent, err := p.place(ctx)
	if err != nil {
		return report{}, err
	}
	// Short of space, zfs set grows the volume before it notices, and shrinks it again.
	if zvol.reservation > 0 && size-zvol.reservation > parent.available {
		return report{}, fmt.Errorf("%w: %d bytes available, %d needed", storage.ErrNoSpace, parent.available, size-zvol.reservation)
	}
	if _, err := p.tool(ctx, "zfs", "set", fmt.Sprintf("volsize=%d", size), zvol.name); err != nil {
		return report{}, err
	}
	grown, err := p.usable(ctx, name, owner)
	if err == nil && grown.size != size {
		err = fmt.Errorf("zfs made %d bytes, asked for %d", grown.size, size)
	}
	return grown, err
}

// reserve completes a reservation that is smaller than the volume: a crash came between the
// two transactions in which zfs set grows them.
func (p *Pool) reserve(ctx context.Context, zvol report) error {
	if zvol.reservation == 0 || zvol.reservation >= zvol.size {
		return nil
	}
	_, err := p.tool(ctx, "zfs", "set", "refreservation=auto", zvol.name)
	return err
}
