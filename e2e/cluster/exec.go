package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// Logs answers what a container has written so far. An empty container name is the pod's
// only one.
func (c *ControlPlane) Logs(ctx context.Context, namespace, pod, container string) (string, error) {
	data, err := c.Client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("logs of %s/%s %s: %w", namespace, pod, container, err)
	}
	return string(data), nil
}

// WaitLog follows a container's log until a line contains the text, and answers that line.
func (c *ControlPlane) WaitLog(ctx context.Context, namespace, pod, container, text string) (string, error) {
	options := &corev1.PodLogOptions{Container: container, Follow: true}
	stream, err := c.Client.CoreV1().Pods(namespace).GetLogs(pod, options).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("logs of %s/%s %s: %w", namespace, pod, container, err)
	}
	defer stream.Close()
	last := ""
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		if last = lines.Text(); strings.Contains(last, text) {
			return last, nil
		}
	}
	return "", fmt.Errorf("wait for %q in the log of %s/%s: %w; last line: %s",
		text, namespace, pod, errors.Join(ctx.Err(), lines.Err(), io.ErrUnexpectedEOF), last)
}

// output collects two streams that are written at the same time. It is no bytes.Buffer on
// purpose: io.Copy would use ReadFrom, and two of those lose each other's bytes.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Exec runs a program in a container and answers its output, standard error included. A
// program that fails is an error that holds its output and, through errors.As, a
// k8s.io/client-go/util/exec.CodeExitError.
func (c *ControlPlane) Exec(ctx context.Context, namespace, pod, container string, argv ...string) (string, error) {
	request := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: container, Command: argv, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Config, "GET", request.URL().String())
	if err != nil {
		return "", fmt.Errorf("exec in %s/%s: %w", namespace, pod, err)
	}
	var out output
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &out})
	if err != nil {
		return out.String(), fmt.Errorf("exec %s in %s/%s: %w: %s",
			strings.Join(argv, " "), namespace, pod, err, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}
