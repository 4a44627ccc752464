#!/usr/bin/env python3
"""A program that is the work of a periodic task, in Python.

    horolog cycle run tasks.toml

    # tasks.toml
    [[task]]
    name = "tracks"
    period = "50ms"
    program = ["python3", "docs/examples/cycle_program.py"]
    states = ["data simulation", "fault tolerance"]

HOROLOG_CYCLE_FD is the number of a Unix datagram socket that is connected already. Each datagram is
one line. The instant of a mark is taken by the kernel in send(2).
"""
import os
import socket
import sys

number = os.environ.get("HOROLOG_CYCLE_FD")
if number is None:
    sys.exit("program: start it as the program of a task, by 'horolog cycle run'")
marks = socket.socket(fileno=int(number))


def mark(line):
    marks.send(line.encode())


mark("ready")
while True:
    word, *rest = marks.recv(128).decode().split()
    if word != "release":
        break
    cycle, due_ns = map(int, rest)  # due_ns is of CLOCK_MONOTONIC
    mark("begin")
    # From every tenth period on for three periods, a source is taken for lost.
    mark("state fault tolerance" if cycle % 10 >= 7 else "state data simulation")
    tracks = sorted((cycle * 7919 + source * 104729) % 1000 for source in range(500))
    if cycle % 10 >= 7:
        tracks = [(left + right) // 2 for left, right in zip(tracks, tracks[1:])]
    mark("phase communication")
    # What goes to other machines would be sent and awaited here.
    mark("end")
