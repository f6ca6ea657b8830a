"""Functions that the broken topologies name, rightly or wrongly."""


def each(id, user, url):
    return (user,)


def pair(id, user):
    return (user,)


class Keyed:
    def process(self, state, id, user, url):
        return (user,)
