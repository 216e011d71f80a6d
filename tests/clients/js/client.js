// One MQTT.js client with a queue in place of callbacks. It never reconnects by itself.
'use strict'

const mqtt = require('mqtt')

const PATIENCE_MS = 10_000
const QUIET_MS = 250
const PORT = Number(process.env.CLIENTS_PORT)
const NARROW_PORT = Number(process.env.CLIENTS_NARROW_PORT)
// Of the same brokers, where the suite is to come over WebSocket.
const WEB_PORTS = Object.fromEntries(
  (process.env.CLIENTS_WEB_PORTS ?? '').split(' ').map((pair) => pair.split('=')))

let names = 0
const unique = (word) => `js-${word}-${process.pid}-${++names}`
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

function within(promise, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} in time`)), PATIENCE_MS)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

class Client {
  static opened = []

  constructor(version, { port = PORT, ...options } = {}) {
    const three = version === 3 ? { protocolId: 'MQIsdp' } : {}
    this.version = version
    this.inbox = []
    this.waiting = []
    this.packets = []
    const web = WEB_PORTS[port]
    const url = web ? `ws://127.0.0.1:${web}/mqtt` : `mqtt://127.0.0.1:${port}`
    this.mqtt = mqtt.connect(url, {
      protocolVersion: version, clientId: unique('client'), reconnectPeriod: 0, clean: true,
      ...three, ...options,
    })
    this.mqtt.on('error', (error) => { this.error = error })
    this.mqtt.on('packetreceive', (packet) => this.packets.push(packet))
    this.ended = new Promise((resolve) => {
      this.mqtt.on('disconnect', (packet) => resolve(packet.reasonCode))
      this.mqtt.on('close', () => resolve(undefined))
    })
    this.mqtt.on('message', (topic, payload, packet) => {
      const waiting = this.waiting.shift()
      // The packet keeps an alias's empty topic, the argument has its meaning.
      const named = { ...packet, topic }
      if (waiting) waiting(named)
      else this.inbox.push(named)
    })
    Client.opened.push(this)
  }

  static async open(version, options) {
    const client = new Client(version, options)
    client.connack = await within(new Promise((resolve, reject) => {
      client.mqtt.once('connect', resolve)
      client.mqtt.once('error', reject)
    }), 'CONNACK')
    return client
  }

  static async closeAll() {
    const all = Client.opened.splice(0)
    await Promise.all(all.map((client) => client.mqtt.endAsync(true)))
  }

  // The codes of SUBACK.
  async subscribe(filters, options = {}) {
    const granted = await within(this.mqtt.subscribeAsync(filters, { qos: 0, ...options }), 'SUBACK')
    return granted.map((one) => one.qos)
  }

  publish(topic, payload, options = {}) {
    return within(this.mqtt.publishAsync(topic, payload, options), `answer to PUBLISH ${topic}`)
  }

  next() {
    if (this.inbox.length > 0) return Promise.resolve(this.inbox.shift())
    return within(new Promise((resolve) => this.waiting.push(resolve)), 'message')
  }

  async take(count) {
    const all = []
    while (all.length < count) all.push(await this.next())
    return all
  }

  // All that was sent to us before has come: our own message comes behind it.
  async sync() {
    const topic = unique('sync')
    await this.subscribe(topic, { qos: 1 })
    await this.publish(topic, 'sync', { qos: 1 })
    const came = []
    for (;;) {
      const packet = await this.next()
      if (packet.topic === topic) return came
      came.push(packet)
    }
  }

  async quiet(ms = QUIET_MS) {
    await pause(ms)
    const [first] = this.inbox
    if (first) throw new Error(`unexpected: ${first.topic} ${first.payload}`)
  }

  end() {
    return within(this.ended, 'end of the connection')
  }

  // The socket goes without DISCONNECT.
  async cut() {
    this.mqtt.stream.destroy()
    await this.end()
  }

  close(options) {
    return within(this.mqtt.endAsync(false, options), 'close')
  }
}

module.exports = { Client, NARROW_PORT, pause, unique, within }
