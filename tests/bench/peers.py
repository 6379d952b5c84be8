def install(): pass
def peers(bench): return []
