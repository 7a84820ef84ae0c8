package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dialWait is how long a guest that is up may take to accept; longer means it is cut off.
const dialWait = 5 * time.Second

// Client speaks to the agent of one guest. It keeps no connections: after a crash of the guest an
// idle one would be silent for ever.
type Client struct {
	Address string // host:port

	// Dial replaces net.Dialer.DialContext, for callers in another network namespace.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Run runs a command and copies its output to w as it appears. The error is about the
// connection; a command that fails has a code.
func (c *Client) Run(ctx context.Context, cmd Command, w io.Writer) (code int, err error) {
	body, err := json.Marshal(cmd)
	if err != nil {
		return 0, err
	}
	resp, err := c.do(ctx, http.MethodPost, "/exec", bytes.NewReader(body), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return 0, fmt.Errorf("read output: %w", err)
	}
	return strconv.Atoi(resp.Trailer.Get(exitTrailer))
}

// Put writes a file.
func (c *Client) Put(ctx context.Context, path string, data []byte, mode fs.FileMode) error {
	header := http.Header{modeHeader: {strconv.FormatUint(uint64(mode.Perm()), 8)}}
	resp, err := c.do(ctx, http.MethodPut, "/file"+path, bytes.NewReader(data), header)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Get reads a file; fs.ErrNotExist when it is not there.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	resp, err := c.do(ctx, http.MethodGet, "/file"+path, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// Sync flushes the guest's disks.
func (c *Client) Sync(ctx context.Context) error {
	resp, err := c.do(ctx, http.MethodPost, "/sync", nil, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Shell joins a terminal of the caller, already in raw mode, to a bash in the guest.
func (c *Client) Shell(ctx context.Context, in io.Reader, out io.Writer, term string, rows, columns int) error {
	conn, err := c.dial(ctx, "tcp", c.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /shell HTTP/1.1\r\nHost: guest\r\n%s: %dx%d\r\n%s: %s\r\nContent-Length: 0\r\n\r\n",
		sizeHeader, rows, columns, termHeader, term)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("open a shell: %s", resp.Status)
	}
	go io.Copy(conn, in)
	_, err = io.Copy(out, r)
	return err
}

// dial connects within dialWait. "No route to host" is the late answer to a question (ARP) asked
// when the guest was still down or cut off, so it is asked again.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	for {
		conn, err := dial(ctx, network, address)
		if !errors.Is(err, syscall.EHOSTUNREACH) || ctx.Err() != nil {
			return conn, err
		}
	}
}

func (c *Client) do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Address+path, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	transport := &http.Transport{DialContext: c.dial, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s of guest: %w", method, path, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	if resp.StatusCode == http.StatusNotFound {
		err = fmt.Errorf("%w: %s", fs.ErrNotExist, strings.TrimSpace(string(text)))
	}
	return nil, fmt.Errorf("%s %s: %w", method, path, err)
}
