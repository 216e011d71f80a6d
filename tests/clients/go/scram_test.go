package clients

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/eclipse/paho.golang/paho"
	"github.com/xdg-go/scram"
)

const method = "SCRAM-SHA-256"

// A broker of its own, with a user who proves its password by SCRAM. Its port.
func withUsers(t *testing.T) string {
	t.Helper()
	godwit, users := os.Getenv("CLIENTS_GODWIT"), filepath.Join(t.TempDir(), "users")
	passwd := exec.Command(godwit, "passwd", "--scram", "-b", users, "ann", "pencil")
	if said, err := passwd.CombinedOutput(); err != nil {
		t.Fatalf("passwd: %v %s", err, said)
	}
	serve := exec.Command(godwit, "serve", "--memory", "--listen", "tcp://127.0.0.1:0",
		"--shards", os.Getenv("CLIENTS_SHARDS"), "--set", "auth.users="+users)
	said, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Signal(os.Interrupt)
		_ = serve.Wait()
	})
	listens := regexp.MustCompile(`listening on +tcp://.*:(\d+)`)
	lines := bufio.NewScanner(said)
	port := ""
	for port == "" && lines.Scan() {
		if found := listens.FindStringSubmatch(lines.Text()); found != nil {
			port = found[1]
		}
	}
	if port == "" {
		t.Fatal("it does not listen")
	}
	go func() {
		for lines.Scan() {
		}
	}()
	return port
}

// The client's half, by a library that knows nothing of us.
type prover struct {
	t         *testing.T
	password  string
	talk      *scram.ClientConversation
	succeeded chan bool
}

func (p *prover) begin(user string) []byte {
	client, err := scram.SHA256.NewClient(user, p.password, "")
	if err != nil {
		p.t.Fatal(err)
	}
	p.talk = client.NewConversation()
	first, err := p.talk.Step("")
	if err != nil {
		p.t.Fatal(err)
	}
	return []byte(first)
}

func (p *prover) Authenticate(challenge *paho.Auth) *paho.Auth {
	answer, err := p.talk.Step(string(challenge.Properties.AuthData))
	if err != nil {
		p.t.Error(err)
	}
	return &paho.Auth{ReasonCode: 0x18, Properties: &paho.AuthProperties{
		AuthMethod: method, AuthData: []byte(answer),
	}}
}

func (p *prover) Authenticated() { p.succeeded <- true }

// Whether the broker knew the password too.
func (p *prover) trusts(data []byte) bool {
	_, err := p.talk.Step(string(data))
	return err == nil && p.talk.Valid()
}

func prove(t *testing.T, port, user, password string) (*client, *prover, error) {
	prover := &prover{t: t, password: password, succeeded: make(chan bool, 9)}
	given := with(paho.ConnectProperties{AuthMethod: method, AuthData: prover.begin(user)})
	given.port, given.auth = port, prover
	c, err := try(t, given)
	return c, prover, err
}

func TestAPasswordIsProvedWithoutBeingSaid(t *testing.T) {
	t.Parallel()
	port := withUsers(t)
	c, ann, err := prove(t, port, "ann", "pencil")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, c.connack.Properties.AuthMethod, method)
	equal(t, ann.trusts(c.connack.Properties.AuthData), true)
	c.subscribe("t", 1)
	equal(t, c.publishWith(&paho.Publish{Topic: "t", QoS: 1}), 0)

	again := &paho.Auth{ReasonCode: 0x19, Properties: &paho.AuthProperties{
		AuthMethod: method, AuthData: ann.begin("ann"),
	}}
	said, err := c.Client.Authenticate(within(t), again)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, said.Success, true)
	equal(t, c.publishWith(&paho.Publish{Topic: "t", QoS: 1}), 0)

	ann.password = "pen"
	again.Properties.AuthData = ann.begin("ann")
	if said, err := c.Client.Authenticate(within(t), again); err == nil && said.Success {
		t.Fatal("a wrong password")
	}
}

func TestAWrongPasswordProvesNothing(t *testing.T) {
	t.Parallel()
	port := withUsers(t)
	for _, who := range [][2]string{{"ann", "pen"}, {"eve", "pencil"}} {
		c, _, err := prove(t, port, who[0], who[1])
		if err == nil {
			t.Fatal("it came in")
		}
		equal(t, c.connack.ReasonCode, 0x86)
	}
	given := with(paho.ConnectProperties{AuthMethod: "GS2-KRB5", AuthData: []byte("x")})
	given.port = port
	c, err := try(t, given)
	if err == nil {
		t.Fatal("it came in")
	}
	equal(t, c.connack.ReasonCode, 0x8C)
}
