/*
 * The proof of RFC 6455 §4.2.2 that a server has read a WebSocket's opening handshake: what answers
 * the client's key.
 */
#pragma once

#define WEBSOCKET_KEY_CHARS    24 /* base64 of 16 bytes */
#define WEBSOCKET_ACCEPT_BYTES 29 /* base64 of 20 bytes and the NUL */

/* The Sec-WebSocket-Accept for a Sec-WebSocket-Key. */
void websocket_key_answer(const char *key, char ret_accept[WEBSOCKET_ACCEPT_BYTES]);
