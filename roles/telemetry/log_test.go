package telemetry

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/pillar-csi/pillar/storage/host"
)

func TestRPC_Log(t *testing.T) {
	type line struct {
		Level  string
		Msg    string
		Fields map[string]any
	}
	volume := []zap.Field{zap.String(KeyVolumeID, "a/b/c/d")}
	tests := map[string]struct {
		rpc  RPC
		want []line
	}{
		"failure of ours is an error": {
			rpc: RPC{Method: "/m", Code: "Internal", Err: errors.New("mount /a: EIO"), Duration: time.Second, Fields: volume},
			want: []line{{"error", "rpc failed", map[string]any{
				"grpc.method": "/m", "grpc.code": "Internal", "duration_seconds": 1.0,
				"pillar_csi.volume.id": "a/b/c/d", "error": "mount /a: EIO",
			}}},
		},
		"refusal is a warning": {
			rpc: RPC{Method: "/m", Code: "FailedPrecondition", Err: errors.New("no")},
			want: []line{{"warn", "rpc failed", map[string]any{
				"grpc.method": "/m", "grpc.code": "FailedPrecondition", "duration_seconds": 0.0, "error": "no",
			}}},
		},
		"a program is told as it was called": {
			rpc: RPC{Method: "/m", Code: "Internal", Err: fmt.Errorf("create LV a: %w", &host.ExitError{
				Argv: []string{"lvcreate", "--config", "backup{backup=0}", "vg0"}, Code: 5, Stderr: "no such device"})},
			want: []line{{"error", "rpc failed", map[string]any{
				"grpc.method": "/m", "grpc.code": "Internal", "duration_seconds": 0.0,
				"error": "create LV a: lvcreate: exit status 5: no such device", "command": "lvcreate --config backup{backup=0} vg0",
			}}},
		},
		"change is told": {
			rpc: RPC{Method: "/m", Code: "OK", Changed: true},
			want: []line{{"info", "rpc done", map[string]any{
				"grpc.method": "/m", "grpc.code": "OK", "duration_seconds": 0.0,
			}}},
		},
		"read is silent": {rpc: RPC{Method: "/m", Code: "OK"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zapcore.InfoLevel)
			test.rpc.Log(zap.New(core))
			var got []line
			for _, e := range logs.All() {
				got = append(got, line{e.Level.String(), e.Message, e.ContextMap()})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Log(%+v): (-want +got)\n%s", test.rpc, diff)
			}
		})
	}
}

func TestNewLogger(t *testing.T) {
	log, err := NewLogger("warn")
	if err != nil {
		t.Fatalf("NewLogger(warn) = %v", err)
	}
	if log.Core().Enabled(zapcore.InfoLevel) {
		t.Error("NewLogger(warn) logs INFO")
	}
	if _, err := NewLogger("loud"); err == nil {
		t.Error("NewLogger(loud) = nil, want an error")
	}
}
