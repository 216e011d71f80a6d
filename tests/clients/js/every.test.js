// What MQTT.js does alike in 3.1, 3.1.1 and 5.0.
'use strict'

const { afterEach, describe, test } = require('node:test')
const assert = require('node:assert/strict')
const crypto = require('node:crypto')
const { Client, unique } = require('./client.js')

const text = (packets) => packets.map((packet) => packet.payload.toString())
const numbers = (packets) => text(packets).map(Number)
const range = (from, to, step = 1) =>
  Array.from({ length: Math.ceil((to - from) / step) }, (_, at) => from + at * step)

for (const [name, version] of [['3.1', 3], ['3.1.1', 4], ['5.0', 5]]) {
  const open = (options) => Client.open(version, options)
  const kept = version === 5
    ? { clean: false, properties: { sessionExpiryInterval: 100 } } : { clean: false }

  describe(name, { concurrency: false }, () => {
    afterEach(() => Client.closeAll())

    test('every QoS passes both ways', async () => {
      const topic = unique('qos')
      const sender = await open()
      for (const granted of [0, 1, 2]) {
        const receiver = await open()
        assert.deepEqual(await receiver.subscribe(topic, { qos: granted }), [granted])
        for (const qos of [0, 1, 2]) {
          await sender.publish(topic, `${qos} to ${granted}`, { qos })
          const packet = await receiver.next()
          assert.equal(packet.payload.toString(), `${qos} to ${granted}`)
          assert.equal(packet.qos, Math.min(qos, granted))
          assert.equal(packet.retain || packet.dup, false)
        }
        assert.deepEqual(await receiver.sync(), [])
      }
    })

    test('order holds for a burst', async () => {
      const topic = unique('burst')
      const [sender, receiver] = [await open(), await open()]
      await receiver.subscribe(topic, { qos: 2 })
      for (const qos of [0, 1, 2]) {
        await Promise.all(range(0, 300).map((n) => sender.publish(topic, `${n}`, { qos })))
        assert.deepEqual(numbers(await receiver.take(300)), range(0, 300))
      }
    })

    test('retained is set, replaced, cleared and found by wildcard', async () => {
      const root = unique('retained')
      const sender = await open()
      for (const [tail, payload, qos] of [['a', '1', 0], ['a', '2', 2], ['b/c', '3', 1]]) {
        await sender.publish(`${root}/${tail}`, payload, { qos, retain: true })
      }
      const late = await open()
      await late.subscribe(`${root}/#`, { qos: 2 })
      const got = (await late.take(2)).map((p) => [p.topic, p.payload.toString(), p.qos, p.retain])
      assert.deepEqual(got.sort(), [[`${root}/a`, '2', 2, true], [`${root}/b/c`, '3', 1, true]])
      for (const tail of ['a', 'b/c']) {
        await sender.publish(`${root}/${tail}`, '', { qos: 1, retain: true })
      }
      assert.deepEqual((await late.take(2)).map((p) => p.retain), [false, false])
      const later = await open()
      await later.subscribe([`${root}/#`, `${root}/a`])
      assert.deepEqual(await later.sync(), [])
    })

    test('a will comes when the socket is cut and not on DISCONNECT', async () => {
      const topic = unique('will')
      const watcher = await open()
      await watcher.subscribe(topic, { qos: 2 })
      for (const qos of [0, 1, 2]) {
        const lost = await open({ will: { topic, payload: `will ${qos}`, qos, retain: qos === 1 } })
        await lost.cut()
        const packet = await watcher.next()
        assert.deepEqual([packet.payload.toString(), packet.qos], [`will ${qos}`, qos])
      }
      const late = await open()
      await late.subscribe(topic)
      assert.deepEqual(text(await late.sync()), ['will 1'])
      await (await open({ will: { topic, payload: 'never', qos: 0, retain: false } })).close()
      await watcher.quiet()
      await watcher.publish(topic, '', { qos: 1, retain: true })
    })

    test('a shared subscription gives each message to one', async () => {
      const topic = unique('shared')
      const members = []
      for (let n = 0; n < 3; n++) {
        members.push(await open())
        assert.deepEqual(await members[n].subscribe(`$share/g/${topic}`, { qos: 1 }), [1])
      }
      const own = await open()
      await own.subscribe(topic)
      const sender = await open()
      await Promise.all(range(0, 90).map((n) => sender.publish(topic, `${n}`, { qos: n % 3 })))
      const shares = []
      for (const member of members) shares.push(numbers(await member.sync()))
      assert.deepEqual(shares.flat().sort((a, b) => a - b), range(0, 90))
      assert.ok(shares.every((share) => share.length >= 10), `${shares.map((s) => s.length)}`)
      assert.deepEqual(numbers(await own.sync()).sort((a, b) => a - b), range(0, 90))
    })

    test('a session resumes with its backlog in order', async () => {
      const [topic, clientId] = [unique('resume'), unique('session')]
      const first = await open({ clientId, ...kept })
      assert.equal(first.connack.sessionPresent, false)
      await first.subscribe(topic, { qos: 2 })
      await first.cut()
      const sender = await open()
      await Promise.all(range(0, 200).map(
        (n) => sender.publish(topic, `${n}`, { qos: 1 + Math.floor(n / 100) })))
      const again = await open({ clientId, ...kept })
      if (version !== 3) assert.equal(again.connack.sessionPresent, true)
      const got = await again.take(200)
      assert.deepEqual(numbers(got), range(0, 200))
      assert.deepEqual(got.map((p) => p.qos), range(0, 200).map((n) => 1 + Math.floor(n / 100)))
      await sender.publish(topic, 'live', { qos: 1 })
      assert.deepEqual(text(await again.take(1)), ['live'])
      await again.close()
      const clean = await open({ clientId })
      assert.equal(clean.connack.sessionPresent, false)
      await sender.publish(topic, 'gone', { qos: 1 })
      assert.deepEqual(await clean.sync(), [])
    })

    test('takeover ends the older connection and keeps the session', async () => {
      const [topic, clientId] = [unique('takeover'), unique('session')]
      const old = await open({ clientId, ...kept })
      await old.subscribe(topic, { qos: 1 })
      const latest = await open({ clientId, ...kept })
      assert.equal(await old.end(), version === 5 ? 0x8e : undefined)
      await (await open()).publish(topic, 'to the new one', { qos: 1 })
      assert.deepEqual(text(await latest.take(1)), ['to the new one'])
      await latest.close()
      await open({ clientId })
    })

    test('a megabyte passes whole', async () => {
      const topic = unique('large')
      const payload = crypto.randomBytes(1 << 20)
      const [sender, receiver] = [await open(), await open()]
      await receiver.subscribe(topic, { qos: 2 })
      for (const qos of [0, 1, 2]) {
        await sender.publish(topic, payload, { qos })
        assert.ok((await receiver.next()).payload.equals(payload))
      }
    })

    test('many topics keep apart', async () => {
      const root = unique('many')
      const [sender, receiver, every] = [await open(), await open(), await open()]
      const filters = range(0, 500, 2).map((n) => `${root}/${n}`)
      assert.deepEqual(await receiver.subscribe(filters, { qos: 1 }), filters.map(() => 1))
      await every.subscribe(`${root}/+`, { qos: 1 })
      await Promise.all(range(0, 500).map((n) => sender.publish(`${root}/${n}`, `${n}`, { qos: 1 })))
      assert.deepEqual(numbers(await receiver.sync()), range(0, 500, 2))
      assert.deepEqual(numbers(await every.sync()), range(0, 500))
    })

    test('keep-alive is kept by pings', async () => {
      const client = await open({ keepalive: 1 })
      const begun = Date.now()
      while (client.packets.filter((packet) => packet.cmd === 'pingresp').length < 2) {
        assert.ok(Date.now() - begun < 5000)
        await new Promise((resolve) => client.mqtt.once('packetreceive', resolve))
      }
      assert.ok(client.mqtt.connected)
    })

    test('unsubscribe ends it', async () => {
      const topic = unique('unsubscribe')
      const client = await open()
      await client.subscribe([topic, `${topic}/+`])
      await client.mqtt.unsubscribeAsync(topic)
      await client.publish(topic, 'no')
      await client.publish(`${topic}/x`, 'yes')
      assert.deepEqual(text(await client.sync()), ['yes'])
    })
  })
}
