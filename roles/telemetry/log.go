// Package telemetry is what a process says about itself: its version and its log. It
// owns the keys every role's lines share, so that one query finds a volume's story in
// controller, agent and node.
package telemetry

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/pillar-csi/pillar/storage/host"
)

// Version is the release this binary was built from, set by the linker
// (-ldflags "-X github.com/pillar-csi/pillar/roles/telemetry.Version=v0.1.0").
var Version = "dev"

// The field keys of log lines (deploy.md 8). A secret never reaches any of them.
const (
	KeyVolumeID = "pillar_csi.volume.id" // CSI calls
	KeyPVName   = "pillar_csi.pv.name"   // CreateVolume and agent calls
	KeyDecision = "pillar_csi.fence.decision"
)

// NewLogger answers a logger that writes one JSON object per line on standard error.
// level is debug, info, warn or error.
func NewLogger(level string) (*zap.Logger, error) {
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(parsed)
	cfg.Sampling = nil // one line per failed call, and never fewer
	cfg.DisableStacktrace = true
	cfg.DisableCaller = true
	cfg.OutputPaths = []string{"stderr"}
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	cfg.EncoderConfig.TimeKey = "time"
	log, err := cfg.Build()
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return log, nil
}

// RPC is a finished call, as every role logs it.
type RPC struct {
	Method   string // full method, "/csi.v1.Node/NodeStageVolume"
	Code     string // gRPC code name, "OK", "FailedPrecondition"
	Err      error  // its text is the status message; nil when Code is OK
	Duration time.Duration
	Changed  bool        // it succeeded and changed something
	Fields   []zap.Field // which volume, which decision
}

// Log writes the call's one line: a failure as "rpc failed", a change as "rpc done".
// Reads and retries that found nothing to do say nothing (deploy.md 8).
func (r RPC) Log(log *zap.Logger) {
	fields := append([]zap.Field{
		zap.String("grpc.method", r.Method),
		zap.String("grpc.code", r.Code),
		zap.Float64("duration_seconds", r.Duration.Seconds()),
	}, r.Fields...)
	switch {
	case r.Err != nil:
		log.Log(failureLevel(r.Code), "rpc failed", append(fields, Failure(r.Err)...)...)
	case r.Changed:
		log.Info("rpc done", fields...)
	default:
		log.Debug("rpc done", fields...)
	}
}

// Failure is the error, and how the program was called that failed: the text of the error,
// which callers and conditions show, names it only.
func Failure(err error) []zap.Field {
	fields := []zap.Field{zap.String("error", err.Error())}
	var exit *host.ExitError
	if errors.As(err, &exit) {
		fields = append(fields, zap.String("command", strings.Join(exit.Argv, " ")))
	}
	return fields
}

// failureLevel tells failures of ours from answers a caller has to act on.
func failureLevel(code string) zapcore.Level {
	switch code {
	case "Unknown", "DeadlineExceeded", "Unimplemented", "Internal", "Unavailable", "DataLoss":
		return zapcore.ErrorLevel
	}
	return zapcore.WarnLevel
}
