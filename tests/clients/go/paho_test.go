package clients

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

func clean() options {
	return options{connect: paho.Connect{CleanStart: true}}
}

func with(properties paho.ConnectProperties) options {
	return options{connect: paho.Connect{CleanStart: true, Properties: &properties}}
}

func numbers(from, to int) []string {
	var all []string
	for n := from; n < to; n++ {
		all = append(all, fmt.Sprint(n))
	}
	return all
}

func TestEveryQoSPassesBothWays(t *testing.T) {
	t.Parallel()
	topic := unique("qos")
	sender := open(t, clean())
	for granted := range byte(3) {
		receiver := open(t, clean())
		receiver.subscribe(topic, granted)
		for qos := range byte(3) {
			payload := fmt.Sprintf("%d to %d", qos, granted)
			sender.publish(topic, payload, qos)
			got := receiver.next()
			equal(t, string(got.Payload), payload)
			equal(t, got.QoS, min(qos, granted))
		}
		equal(t, len(receiver.sync()), 0)
	}
}

func TestOrderHoldsForABurst(t *testing.T) {
	t.Parallel()
	topic := unique("burst")
	sender, receiver := open(t, clean()), open(t, clean())
	receiver.subscribe(topic, 2)
	for qos := range byte(3) {
		for _, payload := range numbers(0, 200) {
			packet := &paho.Publish{Topic: topic, Payload: []byte(payload), QoS: qos}
			how := paho.PublishOptions{Method: paho.PublishMethod_AsyncSend}
			if _, err := sender.PublishWithOptions(within(t), packet, how); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, receiver.payloads(200), numbers(0, 200))
	}
}

func TestRetainedIsSetReplacedClearedAndFoundByWildcard(t *testing.T) {
	t.Parallel()
	root := unique("retained")
	sender := open(t, clean())
	sender.retain(root+"/a", "1", 0)
	sender.retain(root+"/a", "2", 2)
	sender.retain(root+"/b/c", "3", 1)
	late := open(t, clean())
	late.subscribe(root+"/#", 2)
	var got []string
	for range 2 {
		m := late.next()
		got = append(got, fmt.Sprintf("%s %s %d %v", m.Topic[len(root):], m.Payload, m.QoS, m.Retain))
	}
	slices.Sort(got)
	equal(t, got, []string{"/a 2 2 true", "/b/c 3 1 true"})
	sender.retain(root+"/a", "", 1)
	sender.retain(root+"/b/c", "", 1)
	equal(t, late.payloads(2), []string{"", ""})
	later := open(t, clean())
	later.subscribe(root+"/#", 2)
	equal(t, len(later.sync()), 0)
}

func TestWillComesWhenTheSocketIsCutAndNotOnDisconnect(t *testing.T) {
	t.Parallel()
	topic := unique("will")
	watcher := open(t, clean())
	watcher.subscribe(topic, 2)
	lose := func(qos byte) *client {
		given := clean()
		given.connect.WillMessage = &paho.WillMessage{Topic: topic, Payload: []byte("lost"), QoS: qos}
		// paho.golang writes no other properties of a will than these and the delay.
		given.connect.WillProperties = &paho.WillProperties{
			User: paho.UserProperties{{Key: "k", Value: "2"}, {Key: "k", Value: "1"}},
		}
		return open(t, given)
	}
	for qos := range byte(3) {
		lose(qos).cut()
		got := watcher.next()
		equal(t, got.QoS, qos)
		equal(t, got.Properties.User, paho.UserProperties{{Key: "k", Value: "2"}, {Key: "k", Value: "1"}})
	}
	lose(1).close()
	watcher.silent()
}

func TestWillWaitsForItsDelayAndIsTakenBackByAResume(t *testing.T) {
	t.Parallel()
	topic := unique("delay")
	watcher := open(t, clean())
	watcher.subscribe(topic, 1)
	lose := func(clientID string, delay, expiry uint32) {
		given := with(paho.ConnectProperties{SessionExpiryInterval: ptr(expiry)})
		given.connect.ClientID = clientID
		given.connect.WillMessage = &paho.WillMessage{Topic: topic, Payload: []byte(clientID), QoS: 1}
		given.connect.WillProperties = &paho.WillProperties{WillDelayInterval: ptr(delay)}
		open(t, given).cut()
	}
	back, late, ends := unique("back"), unique("late"), unique("ends")
	begun := time.Now()
	lose(back, 1, 100)
	open(t, options{connect: paho.Connect{ClientID: back}})
	lose(late, 1, 100)
	lose(ends, 100, 0)
	equal(t, watcher.payloads(2), []string{ends, late})
	if waited := time.Since(begun); waited < 950*time.Millisecond || waited > 3*time.Second {
		t.Fatalf("the will came after %v", waited)
	}
	watcher.silent()
}

func TestSharedSubscriptionGivesEachMessageToOne(t *testing.T) {
	t.Parallel()
	topic := unique("shared")
	var members []*client
	for range 3 {
		member := open(t, clean())
		member.subscribe("$share/g/"+topic, 2)
		members = append(members, member)
	}
	sender := open(t, clean())
	for n, payload := range numbers(0, 90) {
		sender.publish(topic, payload, byte(n%3))
	}
	var all []string
	for _, member := range members {
		share := member.sync()
		if len(share) < 10 {
			t.Errorf("a member got %d", len(share))
		}
		for _, m := range share {
			all = append(all, string(m.Payload))
		}
	}
	wanted := numbers(0, 90)
	slices.Sort(all)
	slices.Sort(wanted)
	equal(t, all, wanted)
}

func TestSessionResumesWithItsBacklogInOrder(t *testing.T) {
	t.Parallel()
	topic := unique("resume")
	given := kept(unique("session"))
	first := open(t, given)
	equal(t, first.connack.SessionPresent, false)
	first.subscribe(topic, 2)
	first.cut()
	sender := open(t, clean())
	for n, payload := range numbers(0, 200) {
		sender.publish(topic, payload, byte(1+n%2))
	}
	again := open(t, given)
	equal(t, again.connack.SessionPresent, true)
	equal(t, again.payloads(200), numbers(0, 200))
	sender.publish(topic, "live", 1)
	equal(t, again.payloads(1), []string{"live"})
	again.close()
	given.connect.CleanStart = true
	equal(t, open(t, given).connack.SessionPresent, false)
}

func TestUnacknowledgedMessagesReturnInOrder(t *testing.T) {
	t.Parallel()
	topic := unique("dup")
	given := kept(unique("session"))
	given.manualAck = true
	first := open(t, given)
	first.subscribe(topic, 1)
	sender := open(t, clean())
	for _, payload := range numbers(0, 5) {
		sender.publish(topic, payload, 1)
	}
	equal(t, first.payloads(5), numbers(0, 5))
	first.cut()
	again := open(t, given)
	var ids []uint16
	for n := range 5 {
		got := again.next()
		equal(t, string(got.Payload), fmt.Sprint(n))
		equal(t, got.Duplicate(), true)
		ids = append(ids, got.PacketID)
		if err := again.Ack(got); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, slices.IsSorted(ids), true)
}

func TestTakeoverIsTold(t *testing.T) {
	t.Parallel()
	topic := unique("takeover")
	given := kept(unique("session"))
	old := open(t, given)
	old.subscribe(topic, 1)
	latest := open(t, kept(given.connect.ClientID))
	equal(t, old.end(), 0x8E)
	equal(t, latest.connack.SessionPresent, true)
	open(t, clean()).publish(topic, "to the new one", 1)
	equal(t, latest.payloads(1), []string{"to the new one"})
}

func TestAMegabytePassesWhole(t *testing.T) {
	t.Parallel()
	topic := unique("large")
	payload := make([]byte, 1<<20)
	_, _ = rand.Read(payload)
	sender, receiver := open(t, clean()), open(t, clean())
	receiver.subscribe(topic, 2)
	for qos := range byte(3) {
		sender.publishWith(&paho.Publish{Topic: topic, Payload: payload, QoS: qos})
		if !bytes.Equal(receiver.next().Payload, payload) {
			t.Fatalf("QoS %d: the payload changed", qos)
		}
	}
}

func TestManyTopicsKeepApart(t *testing.T) {
	t.Parallel()
	root := unique("many")
	sender, receiver, every := open(t, clean()), open(t, clean()), open(t, clean())
	packet := &paho.Subscribe{}
	var wanted []string
	for n := 0; n < 500; n += 2 {
		wanted = append(wanted, fmt.Sprint(n))
		packet.Subscriptions = append(packet.Subscriptions,
			paho.SubscribeOptions{Topic: fmt.Sprintf("%s/%d", root, n), QoS: 1})
	}
	equal(t, receiver.subscribeWith(packet), bytes.Repeat([]byte{1}, 250))
	every.subscribe(root+"/+", 1)
	for _, payload := range numbers(0, 500) {
		sender.publish(root+"/"+payload, payload, 1)
	}
	equal(t, receiver.payloads(250), wanted)
	equal(t, every.payloads(500), numbers(0, 500))
	equal(t, len(receiver.sync()), 0)
}

func TestKeepAliveIsKept(t *testing.T) {
	t.Parallel()
	given := clean()
	given.connect.KeepAlive = 1
	alive := open(t, given)
	time.Sleep(1800 * time.Millisecond)
	equal(t, len(alive.sync()), 0)
}

func TestAllPropertiesArriveAsTheyWere(t *testing.T) {
	t.Parallel()
	topic := unique("properties")
	receiver := open(t, clean())
	receiver.subscribe(topic, 2)
	user := paho.UserProperties{{Key: "b", Value: "2"}, {Key: "a", Value: "1"}, {Key: "b", Value: "1"}}
	for qos := range byte(3) {
		open(t, clean()).publishWith(&paho.Publish{
			Topic: topic, QoS: qos, Payload: []byte("x"),
			Properties: &paho.PublishProperties{
				CorrelationData: []byte{0, 255, 1}, ContentType: "text/plain", ResponseTopic: "answer",
				PayloadFormat: ptr[byte](1), MessageExpiry: ptr[uint32](1000), User: user,
			},
		})
		p := receiver.next().Properties
		equal(t, p.CorrelationData, []byte{0, 255, 1})
		equal(t, p.ContentType+p.ResponseTopic, "text/plainanswer")
		equal(t, *p.PayloadFormat, 1)
		equal(t, *p.MessageExpiry >= 999 && *p.MessageExpiry <= 1000, true)
		equal(t, p.User, user)
	}
}

func TestMessageExpiryIsCountedDownAndEnds(t *testing.T) {
	t.Parallel()
	topic := unique("expiry")
	given := kept(unique("session"))
	first := open(t, given)
	first.subscribe(topic, 1)
	first.close()
	sender := open(t, clean())
	for _, seconds := range []uint32{1, 100} {
		sender.publishWith(&paho.Publish{
			Topic: topic, QoS: 1, Payload: []byte(fmt.Sprint(seconds)),
			Properties: &paho.PublishProperties{MessageExpiry: ptr(seconds)},
		})
	}
	time.Sleep(1200 * time.Millisecond)
	got := open(t, given).next()
	equal(t, string(got.Payload), "100")
	equal(t, *got.Properties.MessageExpiry >= 98 && *got.Properties.MessageExpiry <= 99, true)
}

func TestTopicAliasesGoBothWays(t *testing.T) {
	t.Parallel()
	topic := unique("alias")
	receiver := open(t, with(paho.ConnectProperties{TopicAliasMaximum: ptr[uint16](1)}))
	receiver.subscribe(topic, 1)
	sender := open(t, clean())
	for n := range 10 {
		packet := &paho.Publish{
			QoS: 1, Payload: []byte(fmt.Sprint(n)),
			Properties: &paho.PublishProperties{TopicAlias: ptr[uint16](5)},
		}
		if n == 0 {
			packet.Topic = topic
		}
		sender.publishWith(packet)
	}
	var named, aliased int
	for n := range 10 {
		got := receiver.next()
		equal(t, string(got.Payload), fmt.Sprint(n))
		switch got.Topic {
		case topic:
			named++
		case "":
			equal(t, *got.Properties.TopicAlias, 1)
			aliased++
		}
	}
	equal(t, named+aliased, 10)
	equal(t, aliased > 5, true)
}

func TestSubscriptionOptionsAndIdentifier(t *testing.T) {
	t.Parallel()
	topic := unique("options")
	one := open(t, clean())
	one.retain(topic, "kept", 1)
	id := 4711
	subscribe := func(option paho.SubscribeOptions) {
		option.Topic, option.QoS = topic, 1
		one.subscribeWith(&paho.Subscribe{
			Properties:    &paho.SubscribeProperties{SubscriptionIdentifier: &id},
			Subscriptions: []paho.SubscribeOptions{option},
		})
	}
	subscribe(paho.SubscribeOptions{RetainHandling: 2})
	subscribe(paho.SubscribeOptions{RetainHandling: 1})
	equal(t, len(one.sync()), 0)
	subscribe(paho.SubscribeOptions{RetainAsPublished: true})
	got := one.next()
	equal(t, fmt.Sprint(got.Retain, *got.Properties.SubscriptionIdentifier), "true 4711")
	one.retain(topic, "again", 1)
	equal(t, one.next().Retain, true)
	subscribe(paho.SubscribeOptions{RetainHandling: 2, NoLocal: true})
	one.publish(topic, "of one", 1)
	open(t, clean()).retain(topic, "", 1)
	equal(t, one.payloads(1), []string{""})
	equal(t, len(one.sync()), 0)
}

func TestReceiveMaximumHoldsTheFlow(t *testing.T) {
	t.Parallel()
	topic := unique("receive-maximum")
	given := with(paho.ConnectProperties{ReceiveMaximum: ptr[uint16](3)})
	given.manualAck = true
	receiver := open(t, given)
	receiver.subscribe(topic, 2)
	sender := open(t, clean())
	for n, payload := range numbers(0, 9) {
		sender.publish(topic, payload, byte(1+n%2))
	}
	var held []*paho.Publish
	for n := range 3 {
		held = append(held, receiver.next())
		equal(t, string(held[n].Payload), fmt.Sprint(n))
	}
	receiver.silent()
	for n := 3; n < 9; n++ {
		_ = receiver.Ack(held[n-3])
		held = append(held, receiver.next())
		equal(t, string(held[n].Payload), fmt.Sprint(n))
	}
}

func TestMaximumPacketSizeOfTheClientIsRespected(t *testing.T) {
	t.Parallel()
	topic := unique("maximum")
	receiver := open(t, with(paho.ConnectProperties{MaximumPacketSize: ptr[uint32](200)}))
	receiver.subscribe(topic, 1)
	sender := open(t, clean())
	sender.publish(topic, string(make([]byte, 200)), 1)
	sender.publish(topic, "small", 1)
	came := receiver.sync()
	equal(t, len(came), 1)
	equal(t, string(came[0].Payload), "small")
}

func TestSessionEndsWithItsExpiryInterval(t *testing.T) {
	t.Parallel()
	short, long := unique("short"), unique("long")
	for clientID, seconds := range map[string]uint32{short: 1, long: 100} {
		given := with(paho.ConnectProperties{SessionExpiryInterval: ptr(seconds)})
		given.connect.ClientID = clientID
		open(t, given).close()
	}
	time.Sleep(1300 * time.Millisecond)
	for clientID, present := range map[string]bool{short: false, long: true} {
		given := options{connect: paho.Connect{ClientID: clientID}}
		equal(t, open(t, given).connack.SessionPresent, present)
	}
}

func TestAClientIDIsAssigned(t *testing.T) {
	t.Parallel()
	given := clean()
	given.connect.ClientID = assigned
	one, two := open(t, given), open(t, given)
	equal(t, one.connack.Properties.AssignedClientID != two.connack.Properties.AssignedClientID, true)
	equal(t, one.connack.Properties.AssignedClientID != "", true)
}

func TestReasonCodes(t *testing.T) {
	t.Parallel()
	c := open(t, clean())
	topic := unique("reasons")
	// What a shard knows of the others' subscribers may say too much of a topic, and then it is 0
	// (MQTT 5.0, 3.4.2.1): not of three.
	nobody := c.publish(topic, "x", 1) == 0x10
	for range 2 {
		nobody = nobody || c.publish(unique("reasons"), "x", 1) == 0x10
	}
	equal(t, nobody, true)
	equal(t, c.publish("$SYS/x", "x", 1), 0x87)
	equal(t, c.publish("$SYS/x", "x", 2), 0x87)
	c.subscribe(topic, 2)
	equal(t, c.publish(topic, "x", 1), 0)
	equal(t, c.publish(topic, "x", 2), 0)
	unsuback, _ := c.Unsubscribe(within(t), &paho.Unsubscribe{Topics: []string{topic, topic + "/x"}})
	equal(t, unsuback.Reasons, []byte{0, 0x11})
}

func TestANarrowBrokerSaysSoAndHoldsToIt(t *testing.T) {
	t.Parallel()
	given := clean()
	given.port = narrowPort
	given.connect.KeepAlive = 600
	c := open(t, given)
	p := c.connack.Properties
	equal(t, fmt.Sprint(*p.MaximumQoS, *p.ServerKeepAlive, *p.MaximumPacketSize), "1 1 4096")
	equal(t, fmt.Sprint(p.RetainAvailable, p.WildcardSubAvailable, p.SubIDAvailable, p.SharedSubAvailable),
		"false false false false")
	// The client takes the broker's keep-alive and pings.
	time.Sleep(1800 * time.Millisecond)
	equal(t, len(c.sync()), 0)
	given.connect.WillMessage = &paho.WillMessage{Topic: "w", QoS: 2}
	refused, err := try(t, given)
	equal(t, err != nil, true)
	equal(t, refused.connack.ReasonCode, 0x9B)
}

func TestARequestFindsItsResponse(t *testing.T) {
	t.Parallel()
	service, answers := unique("service"), unique("answers")
	responder, requester := open(t, clean()), open(t, clean())
	responder.subscribe(service, 1)
	requester.subscribe(answers, 1)
	requester.publishWith(&paho.Publish{
		Topic: service, QoS: 1, Payload: []byte("question"),
		Properties: &paho.PublishProperties{ResponseTopic: answers, CorrelationData: []byte("c7")},
	})
	request := responder.next()
	responder.publishWith(&paho.Publish{
		Topic: request.Properties.ResponseTopic, QoS: 1, Payload: []byte("answer"),
		Properties: &paho.PublishProperties{CorrelationData: request.Properties.CorrelationData},
	})
	answer := requester.next()
	equal(t, string(answer.Payload)+string(answer.Properties.CorrelationData), "answerc7")
}
