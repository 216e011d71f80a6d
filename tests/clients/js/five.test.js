// What MQTT.js does in 5.0 alone.
'use strict'

const { afterEach, test } = require('node:test')
const assert = require('node:assert/strict')
const { Client, NARROW_PORT, pause, unique, within } = require('./client.js')

const open = (options) => Client.open(5, options)
const text = (packets) => packets.map((packet) => packet.payload.toString())

afterEach(() => Client.closeAll())

test('all properties of a message arrive as they were', async () => {
  const topic = unique('properties')
  const receiver = await open()
  await receiver.subscribe(topic, { qos: 2 })
  const properties = {
    payloadFormatIndicator: true,
    messageExpiryInterval: 300,
    responseTopic: 'answer/here',
    correlationData: Buffer.from([0, 255, 1]),
    userProperties: { b: ['2', '1'], a: '1' },
    contentType: 'text/plain',
  }
  for (const qos of [0, 1, 2]) {
    await (await open()).publish(topic, 'x', { qos, properties })
    const got = { ...(await receiver.next()).properties }
    assert.ok([299, 300].includes(got.messageExpiryInterval))
    got.messageExpiryInterval = 300
    got.userProperties = { ...got.userProperties }
    assert.deepEqual(got, properties)
  }
})

test('all properties of a will arrive, after its delay', async () => {
  const topic = unique('will')
  const watcher = await open()
  await watcher.subscribe(topic, { qos: 1 })
  const lost = await open({
    properties: { sessionExpiryInterval: 100 },
    will: {
      topic, payload: 'late', qos: 1, retain: false,
      properties: {
        willDelayInterval: 1, contentType: 'c', responseTopic: 'r', correlationData: Buffer.from('d'),
        userProperties: { k: 'v' }, messageExpiryInterval: 100, payloadFormatIndicator: true,
      },
    },
  })
  const begun = Date.now()
  await lost.cut()
  const { payload, properties } = await watcher.next()
  assert.ok(Date.now() - begun > 950)
  assert.equal(payload.toString(), 'late')
  assert.deepEqual({ ...properties, userProperties: { ...properties.userProperties } }, {
    contentType: 'c', responseTopic: 'r', correlationData: Buffer.from('d'),
    userProperties: { k: 'v' }, messageExpiryInterval: 100, payloadFormatIndicator: true,
  })
})

test('message expiry is counted down while the client is away', async () => {
  const [topic, clientId] = [unique('expiry'), unique('session')]
  const kept = { clientId, clean: false, properties: { sessionExpiryInterval: 100 } }
  const first = await open(kept)
  await first.subscribe(topic, { qos: 1 })
  await first.close()
  const sender = await open()
  for (const seconds of [1, 100]) {
    await sender.publish(topic, `${seconds}`,
      { qos: 1, properties: { messageExpiryInterval: seconds } })
  }
  await pause(1200)
  const again = await open(kept)
  const got = await again.sync()
  assert.deepEqual(text(got), ['100'])
  assert.ok([98, 99].includes(got[0].properties.messageExpiryInterval))
  await again.close()
  await open({ clientId })
})

test('topic aliases of the client are understood', async () => {
  const topics = [unique('alias'), unique('alias')]
  const [receiver, sender] = [await open(), await open({ autoAssignTopicAlias: true })]
  await receiver.subscribe(topics, { qos: 1 })
  let short = 0
  sender.mqtt.on('packetsend', (packet) => { short += packet.cmd === 'publish' && !packet.topic })
  for (let n = 0; n < 20; n++) await sender.publish(topics[n % 2], topics[n % 2], { qos: 1 })
  assert.equal(short, 18)
  const got = await receiver.take(20)
  assert.deepEqual(got.map((packet) => packet.topic), text(got))
})

test('topic aliases of the broker name the topic', async () => {
  const topics = [unique('alias'), unique('alias'), unique('alias')]
  const receiver = await open({ properties: { topicAliasMaximum: 2 } })
  await receiver.subscribe(topics, { qos: 1 })
  const sender = await open()
  for (let n = 0; n < 60; n++) await sender.publish(topics[n % 3], topics[n % 3], { qos: 1 })
  const got = await receiver.take(60)
  assert.deepEqual(got.map((packet) => packet.topic), text(got))
  assert.ok(got.filter((packet) => packet.properties?.topicAlias).length > 30)
})

test('all subscription identifiers arrive', async () => {
  const root = unique('ids')
  const receiver = await open()
  for (const [filter, subscriptionIdentifier] of [[`${root}/#`, 3], [`${root}/+`, 268435455]]) {
    await receiver.subscribe(filter, { properties: { subscriptionIdentifier } })
  }
  await receiver.subscribe(`${root}/a`)
  await receiver.publish(`${root}/a`, 'x')
  const ids = (await receiver.next()).properties.subscriptionIdentifier
  assert.deepEqual([...ids].sort((a, b) => a - b), [3, 268435455])
})

test('retain handling, retain as published and no local', async () => {
  const topic = unique('options')
  const client = await open()
  await client.publish(topic, 'kept', { qos: 1, retain: true })
  const came = []
  for (const rh of [2, 1, 0]) {
    await client.subscribe(topic, { qos: 1, rh, rap: true })
    came.push((await client.sync()).length)
  }
  assert.deepEqual(came, [0, 0, 1])
  await client.publish(topic, 'again', { qos: 1, retain: true })
  assert.deepEqual((await client.sync()).map((packet) => packet.retain), [true])
  await client.subscribe(topic, { qos: 1, rh: 2, nl: true })
  await client.publish(topic, '', { qos: 1, retain: true })
  assert.deepEqual(await client.sync(), [])
})

test('a receive maximum of one loses nothing and keeps the order', async () => {
  const topic = unique('receive-maximum')
  const receiver = await open({ properties: { receiveMaximum: 1 } })
  await receiver.subscribe(topic, { qos: 2 })
  const sender = await open()
  const payloads = Array.from({ length: 60 }, (_, n) => `${n}`)
  await Promise.all(payloads.map((payload, n) => sender.publish(topic, payload, { qos: 1 + n % 2 })))
  assert.deepEqual(text(await receiver.take(60)), payloads)
})

test('the maximum packet size of the client is respected', async () => {
  const topic = unique('maximum')
  const receiver = await open({ properties: { maximumPacketSize: 200 } })
  await receiver.subscribe(topic, { qos: 1 })
  const sender = await open()
  for (const payload of ['x'.repeat(200), 'small']) await sender.publish(topic, payload, { qos: 1 })
  assert.deepEqual(text(await receiver.sync()), ['small'])
})

test('reason codes say what became of a request', async () => {
  const client = await open()
  const topic = unique('reasons')
  // What a shard knows of the others' subscribers may say too much of a topic, and then it is 0
  // (MQTT 5.0, 3.4.2.1): not of three.
  for (const nobody of [topic, unique('reasons'), unique('reasons')]) {
    await client.publish(nobody, 'x', { qos: 1 })
    await client.publish(nobody, 'x', { qos: 2 })
  }
  const answers = client.packets.filter((packet) => ['puback', 'pubrec'].includes(packet.cmd))
  const codes = answers.map((packet) => packet.reasonCode)
  assert.equal(codes.length, 6)
  assert.ok([0, 2, 4].some((at) => codes[at] === 0x10 && codes[at + 1] === 0x10), codes.join())
  await assert.rejects(client.publish('$SYS/x', 'x', { qos: 1 }), { code: 0x87 })
  await assert.rejects(client.publish('$SYS/x', 'x', { qos: 2 }), { code: 0x87 })
  await client.publish(topic, 'alive', { qos: 2 })
  const unsubscribed = new Promise((resolve) => {
    client.mqtt.on('packetreceive', (packet) => packet.cmd === 'unsuback' && resolve(packet))
  })
  await client.subscribe(topic)
  client.mqtt.unsubscribe([topic, `${topic}/x`])
  assert.deepEqual([...(await within(unsubscribed, 'UNSUBACK')).granted], [0, 0x11])
})

test('a client id is assigned', async () => {
  const client = await open({ clientId: '' })
  assert.match(client.connack.properties.assignedClientIdentifier, /^godwit-/)
})

test('a session ends with its expiry interval and DISCONNECT changes it', async () => {
  const ids = { short: unique('short'), long: unique('long'), cleared: unique('cleared') }
  for (const [word, clientId] of Object.entries(ids)) {
    const sessionExpiryInterval = word === 'short' ? 1 : 100
    const client = await open({ clientId, clean: false, properties: { sessionExpiryInterval } })
    const said = word === 'cleared' ? { properties: { sessionExpiryInterval: 0 } } : {}
    await client.close(said)
  }
  await pause(1300)
  for (const [word, clientId] of Object.entries(ids)) {
    const client = await open({ clientId, clean: false })
    assert.equal(client.connack.sessionPresent, word === 'long', word)
  }
})

test('server keep-alive replaces what the client asked for', async () => {
  const client = await open({ port: NARROW_PORT, keepalive: 600 })
  assert.equal(client.connack.properties.serverKeepAlive, 1)
  await pause(1800)
  assert.ok(client.mqtt.connected)
  assert.ok(client.packets.some((packet) => packet.cmd === 'pingresp'))
})

test('a broker that offers less says so and refuses the rest', async () => {
  const client = await open({ port: NARROW_PORT })
  const { maximumQoS, retainAvailable, maximumPacketSize } = client.connack.properties
  assert.deepEqual([maximumQoS, retainAvailable, maximumPacketSize], [1, false, 4096])
  await assert.rejects(client.subscribe('a/#'), /Wildcard Subscriptions not supported/)
  await assert.rejects(client.subscribe('$share/g/a'), /Shared Subscriptions not supported/)
})

test('a request finds its response', async () => {
  const [service, answers] = [unique('service'), unique('answers')]
  const [responder, requester] = [await open(), await open()]
  await responder.subscribe(service, { qos: 1 })
  await requester.subscribe(answers, { qos: 1 })
  const correlationData = Buffer.from('c7')
  await requester.publish(service, 'question',
    { qos: 1, properties: { responseTopic: answers, correlationData } })
  const { properties } = await responder.next()
  await responder.publish(properties.responseTopic, 'answer',
    { qos: 1, properties: { correlationData: properties.correlationData } })
  const answer = await requester.next()
  assert.equal(answer.payload.toString(), 'answer')
  assert.deepEqual(answer.properties.correlationData, correlationData)
})
