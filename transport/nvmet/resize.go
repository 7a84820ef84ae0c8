package nvmet

import (
	"context"
	"fmt"
)

// Resize makes the kernel look at the size of the volume's device again, whose path the
// caller recomputed, and tell connected hosts if it changed; they stay connected. A
// namespace that is disabled reads the size when it is enabled. No export, or one of
// another device, is success. It can be repeated.
func (t *Target) Resize(ctx context.Context, volume, device string) error {
	if err := t.resize(ctx, volume, device); err != nil {
		return fmt.Errorf("resize export of %s: %w", volume, err)
	}
	return nil
}

func (t *Target) resize(ctx context.Context, volume, device string) error {
	nqn, err := NQN(volume)
	if err != nil {
		return err
	}
	defer t.lock(nqn)()
	s, err := t.subsystem(nqn)
	if err != nil || s == nil || !s.enabled {
		return err
	}
	if ours, err := s.backs(device); err != nil || !ours {
		return err
	}
	return s.ns().Trigger(ctx, "revalidate_size", "1")
}
