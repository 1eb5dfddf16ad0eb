// What the platform's useChatStream does, as a program: open the socket of a task, read JSON
// messages, stop at the first terminal stage. Prints {frames, others, code} as one line of JSON.
//
//   node chat_stream.js SOCKET PATH HEADERS_JSON [auth]
//
// `auth`: a first message with a token is sent and its answer is not waited for.
'use strict'

const WebSocket = require('ws')

const [socket, path, headers, auth] = process.argv.slice(2)
const client = new WebSocket(`ws+unix://${socket}:${path}`, { headers: JSON.parse(headers) })
const seen = { frames: [], others: [], code: null, error: null }

client.onopen = () => {
  if (auth) client.send(JSON.stringify({ type: 'auth', token: 'opaque' }))
}
client.onmessage = (event) => {
  const message = JSON.parse(event.data)
  if (!message.stage) {
    seen.others.push(message)
    return
  }
  seen.frames.push(message)
  if (message.stage === 'done' || message.stage === 'error') client.close()
}
client.onerror = (event) => { seen.error = event.message }
client.onclose = (event) => {
  seen.code = event.code
  console.log(JSON.stringify(seen))
}
