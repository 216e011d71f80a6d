// Package clients runs eclipse/paho.golang, a client of 5.0, against the brokers at CLIENTS_PORT
// and CLIENTS_NARROW_PORT.
package clients

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session"
	"github.com/eclipse/paho.golang/paho/session/state"
)

// What must come has this long; what must not come has quiet to show itself.
const (
	patience = 10 * time.Second
	quiet    = 250 * time.Millisecond
)

var (
	port       = os.Getenv("CLIENTS_PORT")
	narrowPort = os.Getenv("CLIENTS_NARROW_PORT")
	names      atomic.Int64
)

func unique(word string) string {
	return fmt.Sprintf("go-%s-%d-%d", word, os.Getpid(), names.Add(1))
}

func ptr[T any](value T) *T { return &value }

// How a client differs from a plain one.
type options struct {
	port      string
	connect   paho.Connect
	session   session.SessionManager
	manualAck bool
	auth      paho.Auther
}

// A client with channels in place of callbacks.
type client struct {
	*paho.Client
	t       *testing.T
	conn    net.Conn
	connack *paho.Connack
	inbox   chan *paho.Publish
	ended   chan byte
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Connects a client; an empty client id gets one of ours.
func open(t *testing.T, given options) *client {
	t.Helper()
	c, err := try(t, given)
	if err != nil {
		t.Fatalf("CONNECT: %v", err)
	}
	return c
}

func try(t *testing.T, given options) (*client, error) {
	t.Helper()
	if given.port == "" {
		given.port = port
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", given.port), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &client{t: t, conn: conn, inbox: make(chan *paho.Publish, 10_000), ended: make(chan byte, 1)}
	received := func(got paho.PublishReceived) (bool, error) {
		c.inbox <- got.Packet
		return true, nil
	}
	c.Client = paho.NewClient(paho.ClientConfig{
		Conn:                       conn,
		Session:                    given.session,
		AuthHandler:                given.auth,
		OnPublishReceived:          []func(paho.PublishReceived) (bool, error){received},
		OnServerDisconnect:         func(d *paho.Disconnect) { c.ended <- d.ReasonCode },
		EnableManualAcknowledgment: given.manualAck,
		SendAcksInterval:           time.Millisecond,
	})
	connect := given.connect
	if connect.KeepAlive == 0 {
		connect.KeepAlive = 60
	}
	switch connect.ClientID {
	case "":
		connect.ClientID = unique("client")
	case assigned:
		connect.ClientID = ""
	}
	c.connack, err = c.Connect(within(t), &connect)
	return c, err
}

// Asks for an id from the broker.
const assigned = "*"

func (c *client) subscribeWith(packet *paho.Subscribe) []byte {
	c.t.Helper()
	suback, err := c.Subscribe(within(c.t), packet)
	if suback == nil {
		c.t.Fatalf("SUBSCRIBE: %v", err)
	}
	return suback.Reasons
}

func (c *client) subscribe(filter string, qos byte) {
	c.t.Helper()
	reasons := c.subscribeWith(&paho.Subscribe{
		Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: qos}},
	})
	equal(c.t, reasons, []byte{qos})
}

// The reason code of the answer; 0 for QoS 0, which has none.
func (c *client) publishWith(packet *paho.Publish) byte {
	c.t.Helper()
	answer, err := c.Publish(within(c.t), packet)
	if packet.QoS == 0 && err == nil {
		return 0
	}
	if answer == nil {
		c.t.Fatalf("PUBLISH: %v", err)
	}
	return answer.ReasonCode
}

func (c *client) publish(topic, payload string, qos byte) byte {
	c.t.Helper()
	return c.publishWith(&paho.Publish{Topic: topic, Payload: []byte(payload), QoS: qos})
}

func (c *client) retain(topic, payload string, qos byte) {
	c.t.Helper()
	c.publishWith(&paho.Publish{Topic: topic, Payload: []byte(payload), QoS: qos, Retain: true})
}

func (c *client) next() *paho.Publish {
	c.t.Helper()
	select {
	case got := <-c.inbox:
		return got
	case <-time.After(patience):
		c.t.Fatal("no message in time")
		return nil
	}
}

func (c *client) payloads(count int) []string {
	c.t.Helper()
	var all []string
	for range count {
		all = append(all, string(c.next().Payload))
	}
	return all
}

// All that was sent to us before has come: our own message comes behind it.
func (c *client) sync() []*paho.Publish {
	c.t.Helper()
	topic := unique("sync")
	c.subscribe(topic, 1)
	c.publish(topic, "sync", 1)
	var came []*paho.Publish
	for {
		got := c.next()
		if got.Topic == topic {
			return came
		}
		came = append(came, got)
	}
}

func (c *client) silent() {
	c.t.Helper()
	select {
	case got := <-c.inbox:
		c.t.Fatalf("unexpected: %s %.80q", got.Topic, got.Payload)
	case <-time.After(quiet):
	}
}

func (c *client) end() byte {
	c.t.Helper()
	select {
	case reason := <-c.ended:
		return reason
	case <-time.After(patience):
		c.t.Fatal("no DISCONNECT in time")
		return 0
	}
}

// The socket goes without DISCONNECT.
func (c *client) cut() {
	_ = c.conn.Close()
	<-c.Done()
}

func (c *client) close() {
	_ = c.Disconnect(&paho.Disconnect{})
}

func equal[T any](t *testing.T, got, wanted T) {
	t.Helper()
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", wanted); g != w {
		t.Fatalf("got %.500s, wanted %.500s", g, w)
	}
}

// A session that outlives its connection, with the client's side of it.
func kept(clientID string) options {
	return options{
		session: state.NewInMemory(),
		connect: paho.Connect{
			ClientID:   clientID,
			Properties: &paho.ConnectProperties{SessionExpiryInterval: ptr[uint32](100)},
		},
	}
}
